// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// remark adds what keeps an order waiting to a report that says nothing of it: carriers cannot reach this agent, or its memory is not what it
// should be.
func (p *pass) remark(f facts, r *report) *report {
	if f.order == nil || absentOrder(f) || f.order.Paused || f.satisfied() {
		return r
	}
	switch place := p.o.Place; {
	case !f.held && place.NoDelivery != "":
		return &report{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonAgentFailed, Message: "No delivery can arrive: " + place.NoDelivery}
	case r != nil:
		return r
	case p.foreign != nil:
		return p.recordForeign()
	case !f.held && place.Forgets != "":
		return &report{State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonAwaitingDelivery, Message: "Every boot needs a new delivery: " + place.Forgets}
	}
	return nil
}

func (p *pass) recordForeign() *report {
	p.remarked = true
	return &report{
		State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonRecordForeign,
		Message: fmt.Sprintf("Nothing was loaded from the agent's record of earlier orders: %v. The orders of this cluster are carried out.", p.foreign),
	}
}

// idle is all there is to say of an order while the agent has no place for its memory: a load without the fuse could take the node down at
// every boot.
func (p *pass) idle(f facts) outcome {
	if f.order == nil || !absentOrder(f) && f.satisfied() {
		return f.outcome(nil)
	}
	return f.outcome(&report{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonAgentFailed, Message: "Nothing is loaded or unloaded: " + p.o.Place.Idle})
}

// tellForeign reports, before anything is done, that the record was not believed: a status that nothing else keeps would not show it at all.
func (a *Agent) tellForeign(ctx context.Context, p *pass, object *v1beta1.NodeModulesConfig) error {
	if a.foreign == nil || a.told {
		return nil
	}
	outcomes := map[key]outcome{}
	for _, k := range p.keys() {
		f, err := p.facts(task{key: k})
		if err != nil {
			return err
		}
		outcomes[k] = f.outcome(nil)
		if f.order != nil && !absentOrder(f) {
			outcomes[k] = f.outcome(p.recordForeign())
		}
	}
	if err := a.report(ctx, p, object, outcomes, false); err != nil {
		return err
	}
	a.told = a.writeAfter.IsZero()
	return nil
}
