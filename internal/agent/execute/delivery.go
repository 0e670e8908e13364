// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
	"github.com/drover-project/drover/internal/agent/report"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

// Import takes over what the carrier has delivered, if it has.
func (e *Executor) Import(ctx context.Context, f observe.Facts) error {
	d := f.Order.Delivery
	digest, err := e.importTree(ctx, d)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Imported", "module", f.Key.String(), "delivery", d.ID, "digest", digest)
		e.Held[d.ID] = digest
	case errors.Is(err, fs.ErrNotExist): // the carrier is not done, and is asked again
		e.looked[f.Key] = true
	default:
		e.fail(ctx, f, orders.CarrierHash(f.Order), report.ImportFailed(err))
	}
	return nil
}

// importTree takes over a carrier's output. Where there is no room, what no order needs goes first.
func (e *Executor) importTree(ctx context.Context, d *v1beta1.Delivery) (string, error) {
	digest, err := e.Store.Import(ctx, d.ID, d.CarrierUID)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return digest, err
	}
	wanted := e.Journal.Wanted(e.Orders, e.Held)
	if len(wanted) == len(e.Held) {
		return "", err
	}
	klog.FromContext(ctx).Info("No room for a delivery: what no order needs goes", "delivery", d.ID, "why", err.Error())
	if err := e.Store.Retain(slices.Sorted(maps.Keys(wanted))); err != nil {
		return "", fmt.Errorf("make room: %w", err)
	}
	e.Held = wanted
	return e.Store.Import(ctx, d.ID, d.CarrierUID)
}

// ImportNext takes over what the next order will need, before anything is unloaded for it. It
// returns why that cannot be; nil: it can, or it is not there yet. idle: nothing is taken over.
func (e *Executor) ImportNext(ctx context.Context, k orders.Key, idle bool) *orders.Attempt {
	order := e.Orders[k]
	if !orders.Present(order) || order.Next == nil || order.Paused {
		delete(e.nextRefused, k)
		return nil
	}
	next := order.Next
	if _, held := e.Held[next.ID]; held || next.CarrierUID == "" || idle {
		delete(e.nextRefused, k)
		return nil
	}
	if was, ok := e.nextRefused[k]; ok && was.carrier == next.CarrierUID {
		return was.attempt
	}
	digest, err := e.importTree(ctx, next)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Imported ahead", "module", k.String(), "delivery", next.ID, "digest", digest)
		e.Held[next.ID] = digest
		return nil
	case errors.Is(err, fs.ErrNotExist):
		e.ahead[next.CarrierUID] = true
		return nil
	case kcall.Lacking(err):
		e.ahead[next.CarrierUID] = true // there may be room by then
		return report.ImportFailed(err)
	}
	a := report.ImportFailed(err)
	if !errors.As(err, new(*manifest.Failure)) {
		a.Message = fmt.Sprintf("What the next order needs cannot be imported: %v. What is loaded stays.", err)
	}
	e.nextRefused[k] = nextRefused{carrier: next.CarrierUID, attempt: a}
	klog.FromContext(ctx).Info("Next delivery refused", "module", k.String(), "reason", a.Reason, "message", a.Message)
	return a
}

// Awaited are the carriers that were looked at in this pass and had not delivered.
func (e *Executor) Awaited() map[types.UID]bool {
	awaited := maps.Clone(e.ahead)
	for k := range e.looked {
		awaited[e.Orders[k].Delivery.CarrierUID] = true
	}
	return awaited
}

// Resolve finds out what to load.
func (e *Executor) Resolve(ctx context.Context, f observe.Facts) error {
	id := orders.DeliveryID(f.Order)
	tree, err := e.Store.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		delete(e.Held, id) // damaged: the status no longer claims it, and the operator delivers again
		return nil
	}
	if err != nil {
		return fmt.Errorf("open delivery: %w", err)
	}
	made, err := plan.Make(f.Order.Config, tree, e.Host, f.Outgoing())
	if none, ok := errors.AsType[*plan.Error](err); ok {
		e.fail(ctx, f, orderhash.Of(f.Order), orders.Failed(none.Reason, "Nothing can be loaded: %v.", none))
		if !slices.Contains(f.Outgoing(), kmod.NormalizeName(none.Needs)) { // that one is live, and no help
			e.failures[f.Task].Needs = none.Needs
		}
		return nil
	}
	if err != nil {
		return err
	}
	if e.Journal.Used(f.Key, id) {
		if err := e.Journal.Write(); err != nil {
			return err
		}
	}
	e.made[f.Task] = made
	e.plans[f.Task] = knownPlan{hash: orderhash.Of(f.Order), plan: made}
	return nil
}

// ForgetFailures forgets failures of an order, what the kernel refused, and what the fuse holds
// back, as somebody asked for. ready: it is known what there is to forget.
func (e *Executor) ForgetFailures(ctx context.Context, f observe.Facts, ready bool) error {
	asked := f.Order.Retry.Time
	delete(e.failures, f.Task)
	delete(e.failures, orders.Task{Key: f.Key, Previous: true})
	delete(e.Journal.RolledBack, f.Key)
	e.Retried.Heard[f.Key] = asked
	if !ready {
		return nil
	}
	klog.FromContext(ctx).Info("Trying again, as asked", "module", f.Key.String(), "asked", asked)
	// Before the note that it was done: should the agent end in between, it is done once more.
	if f.Plan != nil {
		if err := e.forgetRefusals(f); err != nil {
			return err
		}
	}
	return e.Retried.Note(f.Key, asked, func(k orders.Key) bool { return e.Orders[k] != nil })
}

func (e *Executor) forgetRefusals(f observe.Facts) error {
	refusals := len(e.Journal.Refused)
	for _, s := range f.Plan.Steps {
		delete(e.Journal.Refused, s.Build())
		if e.Fuse == nil {
			continue
		}
		if err := e.Fuse.Release(fuseBuild(s), f.Now); err != nil {
			return fmt.Errorf("release %s: %w", fuseBuild(s), err)
		}
	}
	// What was certain to fail is judged anew, from the node as it is now.
	delete(e.made, f.Task)
	delete(e.plans, f.Task)
	if len(e.Journal.Refused) == refusals {
		return nil
	}
	return e.Journal.Write()
}
