// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/budget"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// plan is what a pass does.
type plan struct {
	*snapshot
	plans []nodeplan.Plan
	// rollout is until time alone changes what the rollout does next; 0: it does not.
	rollout time.Duration
}

// plan looks at every node once, and gives out what they share: turns, and slots for carriers.
func (c *Controller) plan(snap *snapshot) *plan {
	m := snap.Module
	if m != nil {
		snap.Wants = c.desired.Of(m).With(desired.Images{Makes: c.options.Images, Made: snap.images})
	} else {
		c.desired.Forget(snap.Key)
	}
	if m != nil {
		c.ledger.look(snap.Key, snap.nodes)
		c.ledger.recall(snap.Key, facts.Problems(m, v1beta1.ProblemDeliveries))
	}
	snap.Carriers = nodeplan.Carriers{Image: c.options.AgentImage, Mode: c.options.DeliveryMode, User: c.options.CarrierUser}
	snap.Memory = c.ledger.memory(snap.Key)
	snap.Memory.Unwanted, snap.Memory.Drains = c.unwanted.of(snap.Key), c.drains.of(snap.Key)
	snap.Memory.Silent, snap.Memory.Seen = c.silent.of(snap.Key), c.holders.of(snap.Key)
	snap.Now = c.options.Clock.Now()

	c.rests.mark(snap)
	aims, unwanted := snap.Aims(snap.nodes), map[types.UID]time.Time{}
	for i := range snap.nodes {
		if since := aims[i].Unwanted; !since.IsZero() {
			unwanted[snap.nodes[i].Node.UID] = since
		}
	}
	c.unwanted.note(snap.Key, unwanted)
	r := c.turns(snap, aims)
	p := &plan{snapshot: snap, plans: snap.Make(snap.nodes, aims, r)}
	silent := map[types.UID]time.Time{}
	for i := range p.plans {
		if since := p.plans[i].Delivery.Silent; !since.IsZero() {
			silent[p.plans[i].Node.Node.UID] = since
		}
	}
	c.silent.note(snap.Key, silent)
	if r != nil && !r.Again.IsZero() {
		p.rollout = max(r.Again.Sub(snap.Now), time.Millisecond)
	}
	if r != nil && len(r.Crowded) > 0 { // no event of this Module tells that another one has left a node
		p.rollout = min(cmp.Or(p.rollout, slotDelay), slotDelay)
	}
	c.admit(p)
	c.rests.note(p)
	return p
}

// turns says which nodes may change now; nil: all of them.
func (c *Controller) turns(snap *snapshot, aims []nodeplan.Aim) *rollout.Plan {
	parts, rolls := snap.Parts(snap.nodes, aims)
	if !rolls {
		c.options.Budget.Forget(snap.Key)
		return nil
	}
	policy := rollout.PolicyOf(snap.Module)
	c.options.Seen.Date(snap.Key, parts, policy, snap.Now)
	if c.options.Budget == nil {
		return rollout.Make(parts, policy, snap.Now)
	}
	pass := budget.Pass{Module: snap.Key, Modules: snap.modules, Parts: parts, Policy: policy, Now: snap.Now}
	for i := range snap.nodes {
		if n := snap.nodes[i].Node; n != nil {
			pass.Nodes = append(pass.Nodes, n)
		}
	}
	return c.options.Budget.Plan(pass)
}

// admit gives slots to new carriers: where none failed yet, by name, so that the same nodes wait,
// then where the failure is oldest, so that those that always fail keep nobody out.
func (c *Controller) admit(p *plan) {
	var working, asked []string
	var quiet []time.Time
	var asking []*nodeplan.Plan
	needed := map[string]string{}
	for i := range p.plans {
		pl := &p.plans[i]
		if image := pl.Needs(); image != "" {
			needed[pl.Node.Name] = image
		}
		if pl.Delivery.Works {
			working = append(working, pl.Node.Name)
			quiet = append(quiet, pl.Delivery.Quiet)
		}
		if pl.Asks() {
			asking = append(asking, pl)
		}
	}
	c.ledger.retain(p.Key, needed)
	slices.SortStableFunc(asking, func(a, b *nodeplan.Plan) int { return a.Delivery.FailedAt.Compare(b.Delivery.FailedAt) })
	for _, pl := range asking {
		asked = append(asked, pl.Node.Name)
	}
	granted := c.ledger.reserve(p.Key, working, quiet, asked)
	c.options.Metrics.SetDeliveries(c.ledger.deliveries())
	for _, pl := range asking {
		if granted[pl.Node.Name] {
			p.Wake(pl)
		} else {
			pl.Holds = append(pl.Holds, nodeplan.Hold{By: nodeplan.Slots})
		}
	}
}

// problems are what is reported of nodes, by name, and of all of them as v1beta1.AllNodes.
func (p *plan) problems() map[string]reasons.Problem {
	all := map[string]reasons.Problem{}
	for i := range p.plans {
		pl := &p.plans[i]
		if problem := pl.Tell(); problem != nil {
			all[pl.Node.Name] = *problem
		}
		if h := pl.Delivery.Hold; h != nil {
			all[v1beta1.AllNodes] = *h.Problem
		}
	}
	return all
}
