// SPDX-License-Identifier: Apache-2.0

// Package journey makes spans of an order's way through the agent, from when it is first seen until
// the API server is told that it is carried out. It decides nothing, and nothing depends on it.
package journey

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/tracing"
)

// Phases are named by what ends them, as in drover explain --timeline and in the metric
// drover_module_node_phase_seconds.
const (
	Delivered = "delivered" // until the node holds what the order needs
	Loaded    = "loaded"    // from then until it is live
	Unloaded  = "unloaded"  // until it is out of the kernel
	Reported  = "reported"  // from loaded or unloaded until the API server is told
)

// Outcomes of an order that has left.
const (
	done     = "done"
	replaced = "replaced" // by another order, or by none
	stopped  = "stopped"  // the agent ended
)

// Book has the orders that are on their way. Nil has none, and does nothing.
type Book struct {
	ctx  context.Context
	open map[orders.Key]*way
}

// way is one order's.
type way struct {
	goal       string
	root       trace.Span
	rootCtx    context.Context
	phase      string
	span       trace.Span
	lastReason string
}

// New returns nil unless somebody collects spans.
func New(ctx context.Context) *Book {
	if !tracing.On(ctx) {
		return nil
	}
	return &Book{ctx: ctx, open: map[orders.Key]*way{}}
}

// Saw takes what stands about an order. Steps for it belong below the context that it returns.
func (b *Book) Saw(ctx context.Context, f observe.Facts) context.Context {
	if b == nil || f.Previous {
		return ctx
	}
	w := b.open[f.Key]
	if f.Order == nil {
		b.leave(f.Key, replaced)
		return ctx
	}
	phase, goal := phaseOf(f), orders.Digest(f.Order.State, kernel.Canonical(f.Order.Config))
	if w != nil && w.goal != goal {
		b.leave(f.Key, replaced)
		w = nil
	}
	if w == nil {
		if phase == Reported {
			return ctx // it was so before
		}
		w = b.begin(f, goal)
	}
	if w.phase != phase {
		w.enter(phase)
	}
	return trace.ContextWithSpan(ctx, w.span)
}

// phaseOf is the phase that an order is in.
func phaseOf(f observe.Facts) string {
	switch {
	case orders.Absent(f.Order) && f.Loaded != nil:
		return Unloaded
	case orders.Absent(f.Order), f.Satisfied():
		return Reported
	case f.Held:
		return Loaded
	}
	return Delivered
}

func (b *Book) begin(f observe.Facts, goal string) *way {
	name := "order load"
	if orders.Absent(f.Order) {
		name = "order unload"
	}
	w := &way{goal: goal}
	w.rootCtx, w.root = tracing.Start(b.ctx, name, tracing.Namespace.String(f.Key.Namespace), tracing.Object.String(f.Key.Name),
		attribute.String("drover.delivery.id", orders.DeliveryID(f.Order)))
	b.open[f.Key] = w
	return w
}

func (w *way) enter(phase string) {
	if w.span != nil {
		w.span.End()
	}
	w.phase = phase
	_, w.span = tracing.Start(w.rootCtx, phase)
}

// Attempted notes what is said of an order. Only the reason is in the span: a message may quote
// parameters.
func (b *Book) Attempted(k orders.Key, a *orders.Attempt) {
	if b == nil {
		return
	}
	w := b.open[k]
	reason := ""
	if a != nil {
		reason = a.Reason
	}
	if w == nil || w.lastReason == reason {
		return
	}
	w.lastReason = reason
	if a != nil {
		w.root.AddEvent(string(a.State), trace.WithAttributes(tracing.Reason.String(reason)))
	}
}

// Reporting returns a context below the span of an order that the next report is about. A report
// can be about several: then the write is below one of them.
func (b *Book) Reporting(ctx context.Context) context.Context {
	if b == nil {
		return ctx
	}
	var first orders.Key
	var found *way
	for k, w := range b.open {
		if w.phase == Reported && (found == nil || k.String() < first.String()) {
			first, found = k, w
		}
	}
	if found == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, found.span)
}

// Told ends the orders that were carried out: the API server knows.
func (b *Book) Told() {
	if b == nil {
		return
	}
	for k, w := range b.open {
		if w.phase == Reported {
			b.leave(k, done)
		}
	}
}

// Keep ends all orders that are not among these.
func (b *Book) Keep(keys map[orders.Key]*v1beta1.NodeModuleSpec) {
	if b == nil {
		return
	}
	for k := range b.open {
		if keys[k] == nil {
			b.leave(k, replaced)
		}
	}
}

// Close ends all: the agent does.
func (b *Book) Close() {
	if b == nil {
		return
	}
	for k := range b.open {
		b.leave(k, stopped)
	}
}

func (b *Book) leave(k orders.Key, outcome string) {
	w := b.open[k]
	if w == nil {
		return
	}
	delete(b.open, k)
	w.root.SetAttributes(tracing.Outcome.String(outcome))
	if outcome != done && w.lastReason != "" {
		tracing.Fail(w.root, w.lastReason)
	}
	w.span.End()
	w.root.End()
}
