// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/decide"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/place"
	"github.com/drover-project/drover/internal/agent/report"
)

// maxSteps bounds the steps of one order in one pass: one per verb, two for a retry, some spare.
const maxSteps = 12

// pass is one look at everything: facts are read once and again after each step that changes them.
type pass struct {
	exec        *execute.Executor
	place       place.Findings                   // what is wrong with the agent's directories
	foreign     error                            // why its record is not believed
	foreignSaid bool                             // an attempt says so
	said        *v1beta1.NodeModulesConfigStatus // what was reported last; nil: not known
	wake        time.Time                        // wake is the earliest time at which some order has to be decided again.
}

func (a *Agent) newPass(spec v1beta1.NodeModulesConfigSpec) (*pass, error) {
	exec, err := execute.New(a.o.Parts, a.memory, spec)
	if err != nil {
		return nil, err
	}
	p := &pass{exec: exec, place: a.o.Place, foreign: a.foreign}
	if a.unrecorded != nil {
		p.place.Idle = cmp.Or(p.place.Idle, a.unrecorded.Error())
		p.wakeAt(a.o.Clock.Now().Add(recordAgain))
	}
	return p, nil
}

// keys are all orders and all that is loaded, in the order in which they are settled.
func (p *pass) keys() []orders.Key { return decide.Sequence(p.exec.Orders, p.exec.Journal.Loaded) }

// settle takes each order as far as it goes now. An order for which the agent's own means failed
// has an outcome, too. Without outcomes, the kernel could not be read: there is nothing to report.
func (p *pass) settle(ctx context.Context) (map[orders.Key]report.Outcome, error) {
	out := map[orders.Key]report.Outcome{}
	p.exec.Ending = func() bool { return ctx.Err() != nil }
	var failed []error
	wake, err := p.exec.TendFuse(ctx)
	if err != nil {
		failed, p.place.Idle = append(failed, err), cmp.Or(p.place.Idle, err.Error())
	}
	p.wakeAt(wake)
	var notListed map[orders.Key]*orders.Attempt
	idle := p.place.Idle != ""
	if !idle {
		failed, notListed = append(failed, p.exec.TidyFirmware(p.keys())), p.exec.PutBlacklists()
	}
	for _, k := range p.keys() {
		p.exec.Watchdog.Step("the facts about %s", k)
		o, err := p.settleOne(ctx, k)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", k, err))
			if o, err = p.troubled(k, err); err != nil {
				return nil, errors.Join(append(failed, err)...)
			}
		}
		p.exec.Watchdog.Step("a look at the next delivery of %s", k)
		next := p.exec.ImportNext(ctx, k, idle)
		o.Attempt = p.stillStruck(k, cmp.Or(o.Attempt, next, notListed[k]))
		if o.Attempt == nil && o.Live && orders.Present(p.exec.Orders[k]) {
			o.Attempt = report.Recurring(o.Loaded, p.exec.Clock.Now())
		}
		out[k] = o
	}
	p.exec.Watchdog.Step("the end of a pass")
	if !idle {
		failed = append(failed, p.exec.TidyBlacklists(p.keys()))
	}
	return out, errors.Join(failed...)
}

// stillStruck keeps what the fuse has against a delivery in the attempt of an agent that cannot ask
// it now: other nodes still need to know.
func (p *pass) stillStruck(k orders.Key, a *orders.Attempt) *orders.Attempt {
	if a == nil || a.Reason != v1beta1.ReasonAgentFailed || a.Strike != nil || p.said == nil || !orders.Present(p.exec.Orders[k]) {
		return a
	}
	for i := range p.said.Attempts {
		at := &p.said.Attempts[i]
		if keyOf(*at) == k && at.Strike != nil && at.Strike.Delivery == orders.DeliveryID(p.exec.Orders[k]) {
			struck := *a
			struck.Strike, struck.Strikes = at.Strike.DeepCopy(), at.Strikes
			return &struck
		}
	}
	return a
}

// troubled is the outcome of an order that the agent's own means failed.
func (p *pass) troubled(k orders.Key, cause error) (report.Outcome, error) {
	f, err := p.exec.Facts(orders.Task{Key: k})
	if err != nil || f.Order == nil {
		return report.Of(f, nil), err
	}
	o := report.Of(f, nil)
	o.Attempt = orders.Failed(v1beta1.ReasonAgentFailed, "The agent on the node cannot go on: %v.", cause)
	return o, nil
}

// settleOne decides and acts until there is nothing to do now.
func (p *pass) settleOne(ctx context.Context, k orders.Key) (report.Outcome, error) {
	if p.place.Idle != "" {
		f, err := p.exec.Facts(orders.Task{Key: k})
		return report.Idle(f, p.place.Idle), err
	}
	for range maxSteps {
		f, d, err := p.next(ctx, k)
		if err != nil {
			return report.Outcome{}, err
		}
		if d.Verb == decide.Rest {
			if err := p.end(ctx, f); err != nil {
				return report.Outcome{}, err
			}
		}
		if d.Verb == decide.Rest || ctx.Err() != nil {
			p.wakeAt(d.Wake)
			a, foreign := report.Remark(f, d.Attempt, p.place, p.foreign)
			p.foreignSaid = p.foreignSaid || foreign
			return report.Of(f, a), nil
		}
		klog.FromContext(ctx).V(2).Info("Step", "module", k.String(), "verb", d.Verb, "previous", f.Previous)
		p.exec.Watchdog.Step("%s of %s", d.Verb, k)
		if err := p.step(context.WithoutCancel(ctx), f, d); err != nil {
			return report.Outcome{}, fmt.Errorf("%s: %w", d.Verb, err)
		}
	}
	return report.Outcome{}, fmt.Errorf("no end after %d steps", maxSteps)
}

// end does what is left to do where nothing of an order is in the kernel.
func (p *pass) end(ctx context.Context, f observe.Facts) error {
	switch {
	case decide.Vacant(f):
		return p.exec.PutBack(ctx, f.Key)
	case decide.Over(f):
		return p.exec.Close(ctx, f.Key)
	}
	return nil
}

// next is the next step for an order as it stands or, if there is none, as it last worked.
func (p *pass) next(ctx context.Context, k orders.Key) (observe.Facts, decide.Decision, error) {
	f, err := p.exec.Facts(orders.Task{Key: k})
	for err == nil && decide.RetryAsked(f, p.exec.Retried) {
		if err = p.exec.ForgetFailures(ctx, f, decide.RetryReady(f)); err == nil {
			f, err = p.exec.Facts(orders.Task{Key: k})
		}
	}
	if err != nil {
		return f, decide.Decision{}, err
	}
	d := decide.Next(f)
	if d.Verb != decide.Rest || !f.MayFallBack() {
		return f, d, nil
	}
	before, err := p.exec.Facts(orders.Task{Key: k, Previous: true})
	if err != nil {
		return f, d, err
	}
	e := decide.Next(before)
	if e.Verb != decide.Rest {
		return before, e, nil
	}
	p.wakeAt(e.Wake)
	return f, d, nil
}

// step does what was decided. An error means that the agent's own means failed, not the order.
func (p *pass) step(ctx context.Context, f observe.Facts, d decide.Decision) error {
	switch d.Verb {
	case decide.Import:
		return p.exec.Import(ctx, f)
	case decide.Resolve:
		return p.exec.Resolve(ctx, f)
	case decide.Load:
		return p.exec.Load(ctx, f, d.Drifted)
	case decide.Unload:
		return p.exec.Unload(ctx, f)
	case decide.Refresh:
		return p.exec.Refresh(f)
	case decide.Forget:
		return p.exec.Forget(ctx, f.Key)
	case decide.Rest:
	}
	return nil
}

func (p *pass) wakeAt(at time.Time) {
	if !at.IsZero() && (p.wake.IsZero() || at.Before(p.wake)) {
		p.wake = at
	}
}
