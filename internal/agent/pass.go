// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/kmod"
)

// maxSteps bounds how many steps one order may take in one pass: import, resolve, unload, load, refresh, two for a retry and some spare.
const maxSteps = 12

// pass is one look at everything: facts are read once and again after each step that changes them.
type pass struct {
	*Agent
	orders map[key]*v1beta1.NodeModuleSpec
	bootID string
	held   map[string]string
	// present are the modules in the kernel; nil: read them again.
	present map[string]host.State
	plans   map[task]*plan
	looked  map[key]bool
	// ahead are the carriers that were looked at and had not delivered what shall be here ahead of an order.
	ahead map[types.UID]bool
	// reloading are orders for which something was unloaded in this pass, to load something else.
	reloading map[key]bool
	// remarked: some order waits, or waited, since the record was not believed.
	remarked bool
	// notListed are reports of orders whose in-tree modules could not be blacklisted.
	notListed map[key]*report
	// checked is what the checks of readyWhen said.
	checked map[key]watched
	// ending tells that the agent was told to stop: no further call to the kernel is begun.
	ending func() bool
	// wake is the earliest time at which some order has to be decided again.
	wake time.Time
}

// newPass begins a pass over the orders of spec.
func (a *Agent) newPass(spec v1beta1.NodeModulesConfigSpec) (*pass, error) {
	p := &pass{Agent: a, orders: map[key]*v1beta1.NodeModuleSpec{}, plans: map[task]*plan{}, looked: map[key]bool{}, ahead: map[types.UID]bool{}, reloading: map[key]bool{}, checked: map[key]watched{}, ending: func() bool { return false }}
	for i := range spec.Modules {
		p.orders[keyOf(spec.Modules[i])] = &spec.Modules[i]
	}
	var err error
	if p.bootID, err = a.o.Host.BootID(); err != nil {
		return nil, err
	}
	if p.held, err = a.o.Store.Held(); err != nil {
		return nil, err
	}
	fresh, rebooted := a.journal.begin(p.bootID)
	if rebooted {
		a.journal, a.retries, a.known = fresh, map[task]*retry{}, map[task]knownPlan{}
	}
	maps.DeleteFunc(a.known, func(t task, _ knownPlan) bool { return p.orders[t.key] == nil })
	return p, nil
}

// keys are all orders and all that is loaded: unloads first, since they may make room.
func (p *pass) keys() []key {
	all := map[key]bool{}
	for k := range p.orders {
		all[k] = true
	}
	for k := range p.journal.Loaded {
		all[k] = true
	}
	rank := func(k key) int {
		if o := p.orders[k]; o != nil && o.State == v1beta1.NodeModuleAbsent {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b key) int {
		if ra, rb := rank(a), rank(b); ra != rb {
			return ra - rb
		}
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
}

// settle takes each order as far as it goes now. An order for which the agent's own means failed is an outcome like any other; the error
// says it once more for all. Without outcomes, the kernel itself could not be read, and there is nothing to report.
func (p *pass) settle(ctx context.Context) (map[key]outcome, error) {
	out := map[key]outcome{}
	p.ending = func() bool { return ctx.Err() != nil }
	if err := p.mindFuse(ctx); err != nil {
		return nil, err
	}
	failed := []error{p.tidyFirmware()}
	p.putBlacklists()
	for _, k := range p.keys() {
		o, err := p.settleOne(ctx, k)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", k, err))
			if o, err = p.troubled(k, err); err != nil {
				return nil, errors.Join(append(failed, err)...)
			}
		}
		if next := p.takeNext(ctx, k); o.report == nil {
			o.report = next
		}
		if o.report == nil {
			o.report = p.notListed[k]
		}
		if order := p.orders[k]; o.report == nil && o.live && order != nil && order.State != v1beta1.NodeModuleAbsent {
			o.report = o.loaded.recurring(p.o.Clock.Now())
		}
		out[k] = o
	}
	return out, errors.Join(append(failed, p.tidyBlacklists())...)
}

// troubled is the outcome of an order that the agent itself failed at: what the kernel says of it, and why nothing is done.
func (p *pass) troubled(k key, cause error) (outcome, error) {
	f, err := p.facts(task{key: k})
	if err != nil {
		return outcome{}, err
	}
	o := f.outcome(nil)
	if f.order != nil {
		o.report = &report{
			State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonAgentFailed,
			Message: fmt.Sprintf("The agent on the node cannot go on: %v.", cause),
		}
	}
	return o, nil
}

// outcome is what stands about an order. What is live and cannot be used is worth a word where there is no other.
func (f facts) outcome(r *report) outcome {
	if r == nil {
		r = f.unusable
	}
	return outcome{loaded: f.loaded, live: f.holds(), unusable: f.unusable != nil, report: r}
}

// holds: what was loaded for the order, or for an earlier form of it, is live.
func (f facts) holds() bool {
	return f.loaded != nil && f.loaded.Complete && (f.loaded.BuiltIn || f.mainLive())
}

func (p *pass) settleOne(ctx context.Context, k key) (outcome, error) {
	logger := klog.FromContext(ctx)
	for range maxSteps {
		if p.o.Place.Idle != "" {
			f, err := p.facts(task{key: k})
			return p.idle(f), err
		}
		f, d, err := p.next(ctx, k)
		if err != nil {
			return outcome{}, err
		}
		if d.verb != verbRest {
			logger.V(2).Info("Step", "module", k.String(), "verb", d.verb, "previous", f.previous)
		}
		if d.verb == verbRest && f.vacant() {
			if err := p.putBack(ctx, k); err != nil {
				return outcome{}, err
			}
		}
		if d.verb == verbRest || ctx.Err() != nil {
			p.wakeAt(d)
			return f.outcome(p.remark(f, d.report)), nil
		}
		if err := p.step(context.WithoutCancel(ctx), f, d); err != nil {
			return outcome{}, fmt.Errorf("%s: %w", d.verb, err)
		}
	}
	return outcome{}, fmt.Errorf("no end after %d steps", maxSteps)
}

// step does what was decided. Failures of the order are remembered, not returned: an error means the agent's own means
// (state directory, /proc) failed.
func (p *pass) step(ctx context.Context, f facts, d decision) error {
	switch d.verb {
	case verbImport:
		return p.importDelivery(ctx, f)
	case verbResolve:
		return p.resolve(ctx, f)
	case verbLoad:
		return p.load(ctx, f, d.drifted)
	case verbUnload:
		return p.unload(ctx, f)
	case verbRefresh:
		return p.refresh(f)
	case verbForget:
		return p.forget(ctx, f.key)
	case verbRest:
	}
	return nil
}

// facts reads what a decision about one order depends on.
func (p *pass) facts(t task) (facts, error) {
	k := t.key
	f := facts{
		task: t, order: p.orders[k], loaded: p.journal.Loaded[k], journal: p.journal,
		release: p.o.Host.Release(), looked: p.looked[k], plan: p.plans[t], retry: p.retries[t], now: p.o.Clock.Now(),
		firmware: p.o.Firmware != nil, modprobe: p.o.Modprobe != nil,
	}
	if w := p.journal.Worked[k]; w != nil {
		_, f.previousHeld = p.held[w.DeliveryID]
		if t.previous {
			f.order = w.order(f.order)
		}
	}
	if known := p.known[t]; f.plan == nil && f.order != nil && known.plan != nil && known.hash == f.orderHash() {
		f.plan, f.unverified = known.plan, true
	}
	var names []string
	if f.order != nil {
		_, f.held = p.held[deliveryID(f.order)]
		names = append(names, f.mainName())
		names = append(names, f.inTree()...)
	}
	if f.loaded != nil {
		for _, m := range f.loaded.Modules {
			names = append(names, m.Name)
		}
	}
	if f.plan != nil {
		for _, s := range f.plan.Steps {
			names = append(names, s.Name)
		}
	}
	var err error
	if f.live, err = p.see(names); err != nil {
		return f, err
	}
	if f.hold, err = p.heldBack(f); err != nil {
		return f, err
	}
	f.unusable = p.unusable(k, f)
	if len(p.journal.Refused) > 0 {
		f.among = digestOf(p.present)
	}
	if f.retry != nil && f.retry.needs != "" && p.present[kmod.NormalizeName(f.retry.needs)] == host.StateLive {
		f.retry = nil // what it waited for has come
	}
	return f, nil
}

// see reads the facts of those modules that the kernel holds.
func (p *pass) see(names []string) (map[string]host.Module, error) {
	if p.present == nil {
		present, err := p.o.Host.Modules()
		if err != nil {
			return nil, err
		}
		p.present = present
	}
	live := map[string]host.Module{}
	for _, n := range names {
		n = kmod.NormalizeName(n)
		if _, seen := live[n]; seen || p.present[n] == "" {
			continue
		}
		m, ok, err := p.o.Host.Module(n)
		if err != nil {
			return nil, err
		}
		if ok {
			live[n] = m
		}
	}
	return live, nil
}

func (p *pass) wakeAt(d decision) {
	if !d.wake.IsZero() && (p.wake.IsZero() || d.wake.Before(p.wake)) {
		p.wake = d.wake
	}
}
