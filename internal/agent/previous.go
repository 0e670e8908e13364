// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// task is an order as it stands or, previous, as it last worked: what serves while the order as it stands cannot be fulfilled.
type task struct {
	key      key
	previous bool
}

// workedOrder is an order that was fulfilled.
type workedOrder struct {
	Item       v1beta1.ModuleItem   `json:"item"`
	Config     v1beta1.ModuleConfig `json:"config"`
	DeliveryID string               `json:"deliveryID,omitempty"`
}

// order is what now, the order as it stands, was when it worked.
func (w *workedOrder) order(now *v1beta1.NodeModuleSpec) *v1beta1.NodeModuleSpec {
	if now == nil {
		return nil
	}
	then := *now
	then.ModuleItem, then.Config, then.Delivery = w.Item, w.Config, &v1beta1.Delivery{ID: w.DeliveryID}
	return &then
}

const (
	// rolledBackFirst and rolledBackMax bound the pause until an order that failed is tried again: each try takes out the previous one.
	rolledBackFirst = time.Hour
	rolledBackMax   = 24 * time.Hour
)

// rolledBack is an order that failed where a previous one could be brought back.
type rolledBack struct {
	Hash    string `json:"hash"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Times it failed in this boot.
	Times int `json:"times"`
	// Until is when it is tried again; zero: not in this boot, for the kernel's answer is final.
	Until time.Time `json:"until,omitzero"`
}

// again adds a failure to what is remembered.
func (was rolledBack) again(hash string, r report, now time.Time) rolledBack {
	next := rolledBack{Hash: hash, Reason: r.Reason, Message: r.Message, Times: 1}
	if was.Hash == hash {
		next.Times += was.Times
	}
	if !slices.Contains(final, r.Reason) {
		next.Until = now.Add(min(rolledBackFirst<<min(next.Times-1, 6), rolledBackMax))
	}
	return next
}

// worked notes that an order is fulfilled.
func (j *journal) worked(f facts, l *loaded) {
	if f.previous {
		return
	}
	delete(j.RolledBack, f.key)
	if l.BuiltIn {
		delete(j.Worked, f.key)
		return
	}
	if j.Worked == nil {
		j.Worked = map[key]*workedOrder{}
	}
	j.Worked[f.key] = &workedOrder{Item: l.Item, Config: l.Config, DeliveryID: l.DeliveryID}
}

// next is the step to take for an order as it stands or, when there is none, for the order as it last worked.
func (p *pass) next(ctx context.Context, k key) (facts, decision, error) {
	f, err := p.facts(task{key: k})
	for err == nil && p.retryAsked(f) {
		if err = p.forgive(ctx, f); err == nil {
			f, err = p.facts(task{key: k})
		}
	}
	if err != nil {
		return f, decision{}, err
	}
	d := decide(f)
	if d.verb != verbRest || !f.mayFallBack() {
		return f, d, nil
	}
	before, err := p.facts(task{key: k, previous: true})
	if err != nil {
		return f, d, err
	}
	e := decide(before)
	if e.verb != verbRest {
		return before, e, nil
	}
	p.wakeAt(e)
	return f, d, nil
}

// mayFallBack tells whether there is a previous order that may serve in place of this one: for the same kernel, its content on this node,
// and nothing else of ours in its way.
func (f facts) mayFallBack() bool {
	w := f.journal.Worked[f.key]
	if f.previous || w == nil || !f.previousHeld || f.order == nil || absentOrder(f) || f.order.Paused {
		return false
	}
	if w.DeliveryID == deliveryID(f.order) && apiequality.Semantic.DeepEqual(w.Config, f.order.Config) {
		return false
	}
	return sameKernel(w.Config.KernelVersion, f.release) && (len(f.oursLive()) == 0 || f.loaded.is(w))
}

// is tells whether that order was loaded.
func (l *loaded) is(w *workedOrder) bool {
	return l != nil && l.DeliveryID == w.DeliveryID && apiequality.Semantic.DeepEqual(l.Config, w.Config)
}

// giveUp remembers that an order failed where a previous one can be brought back.
func (p *pass) giveUp(f facts, r report) {
	if !f.mayFallBack() {
		return
	}
	if p.journal.RolledBack == nil {
		p.journal.RolledBack = map[key]rolledBack{}
	}
	p.journal.RolledBack[f.key] = p.journal.RolledBack[f.key].again(f.orderHash(), r, p.o.Clock.Now())
}

// rolledBack says why an order rests while the previous one serves.
func (f facts) rolledBack() *report {
	failed, ok := f.journal.RolledBack[f.key]
	w := f.journal.Worked[f.key]
	over := !failed.Until.IsZero() && !f.now.Before(failed.Until)
	if !ok || over || f.previous || failed.Hash != f.orderHash() || w == nil || !f.loaded.is(w) || !f.loaded.Complete || !f.mainLive() {
		return nil
	}
	head, log, _ := strings.Cut(failed.Message, "\n")
	when := "before the next boot"
	if !failed.Until.IsZero() {
		when = "soon, for that takes the previous one out for a moment"
	}
	r := &report{
		State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonRolledBack, Attempt: int32(min(failed.Times, math.MaxInt32)), Next: failed.Until, //nolint:gosec // bounded
		Message: fmt.Sprintf("%s (%s) The previous build (%s) is loaded again, and this one is not tried again %s: mend the image or the Module.",
			head, failed.Reason, w.Config.ContainerImage, when),
	}
	if log != "" {
		r.Message += "\n" + log
	}
	return r
}

// vacant: the order has nothing in the kernel, nor on its way in, so that nothing keeps what it replaces out.
func (f facts) vacant() bool {
	if f.order == nil || absentOrder(f) || f.order.Paused || f.loaded != nil {
		return false
	}
	_, present := f.live[f.mainName()]
	return !present
}
