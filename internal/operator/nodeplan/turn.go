// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Turn is whether a node may change now. The zero value is that it may.
type Turn struct {
	// Waits: until its turn comes, the node keeps what it has.
	Waits bool
	// Stay is the order that it keeps until then; nil: there is no other to give then.
	Stay *v1beta1.NodeModuleSpec
	// Ahead: the delivery is brought before the turn.
	Ahead bool
	// Tell is what is told of the node, or nil.
	Tell *reasons.Problem
}

// rolls reports whether changes of the Module go from node to node.
func (p *Pass) rolls() bool {
	m := p.Module
	return m != nil && m.DeletionTimestamp == nil && m.Spec.ModuleLoader != nil && !rollout.Labelled(m)
}

// Parts are the nodes' parts of the rollout; false: every node may change at once.
func (p *Pass) Parts(nodes []Node, aims []Aim) (parts []rollout.Node, rolls bool) {
	if !p.rolls() {
		return nil, false
	}
	for i := range nodes {
		if part, has := p.part(&nodes[i], &aims[i]); has {
			parts = append(parts, part)
		}
	}
	return parts, true
}

// part is a node's part of the rollout; false: it has none.
func (p *Pass) part(n *Node, a *Aim) (rollout.Node, bool) {
	if n.Node == nil {
		return rollout.Node{}, false
	}
	waited := p.Memory.Drains[n.Name]
	f := rollout.Facts{
		Node: n.Node, Order: n.Order, Live: n.Live, Attempt: n.Attempt,
		// What goes to no further node does not wait for a turn.
		Paused: a.Wishes.Paused || a.Order != nil && a.Keep,
		Begun:  drain.Marked(n.Node, p.Key) && !waited.over(),
		Late:   a.Order != nil && p.late(n, a),
		Later:  a.Unload != "" && a.Keep,
		Passed: waited.Passed,
	}
	if n.Config != nil {
		f.Artifacts = n.Config.Status.Artifacts
	}
	wants := p.Wants.On(&n.Node.Status.NodeInfo)
	return desired.Part(p.Module, &wants, f)
}

// late reports whether a delivery does not come: it failed lately, or its carrier is stuck.
func (p *Pass) late(n *Node, a *Aim) bool {
	if p.failure(n, a).Rests(p.Now, a.retry()) {
		return true
	}
	carrier, _ := p.carriers(n, a)
	return carrier != nil && (delivery.ProblemOf(carrier) != nil || p.idles(carrier))
}

// Turn is what the rollout says of a node; r is nil where there is none.
func (p *Pass) Turn(n *Node, a *Aim, r *rollout.Plan) Turn {
	if r == nil || !r.Hold[n.Name] {
		return Turn{}
	}
	t := Turn{Waits: true}
	if a.Keep {
		return t
	}
	if a.Order != nil {
		t.Stay, t.Ahead = p.stay(n, a), r.Deliver[n.Name]
	}
	t.Tell = p.Memory.Drains[n.Name].Told
	return t
}
