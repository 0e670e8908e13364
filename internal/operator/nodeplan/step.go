// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Plan is what was decided of one node, stage by stage.
type Plan struct {
	// Key is the Module's name.
	Key      types.NamespacedName
	Node     *Node
	Aim      Aim
	Turn     Turn
	Delivery Delivery
	Drain    Drain
	// Rest is why the node was not planned anew, or nil.
	Rest *Rest
	// Holds are added while the plan is carried out.
	Holds []Hold
}

// Hold is what keeps a node's change from going on in this pass.
type Hold struct {
	By Holder
	// Problem is what to report of it, or nil.
	Problem *reasons.Problem
}

// Holder is who, or what, holds a node's change.
type Holder int

const (
	// Policies are missing on which the trust in carriers rests.
	Policies Holder = iota
	// Slots for carriers are all taken.
	Slots
	// Admission refused the carrier.
	Admission
	// Claims hold devices, or the DRA driver has not left.
	Claims
	// Pods have not left, or the node could not be cordoned.
	Pods
)

// Make decides for every node. The rollout is nil where there is none.
func (p *Pass) Make(nodes []Node, aims []Aim, r *rollout.Plan) []Plan {
	p.halted(nodes, r)
	plans := make([]Plan, len(nodes))
	for i := range nodes {
		n, a := &nodes[i], &aims[i]
		if n.Rest != nil {
			if r == nil || !r.Hold[n.Name] {
				plans[i] = Plan{Key: p.Key, Node: n, Rest: n.Rest}
				continue
			}
			*a = p.Aim(n)
		}
		plans[i] = p.plan(n, a, r)
	}
	return plans
}

func (p *Pass) plan(n *Node, a *Aim, r *rollout.Plan) Plan {
	t := Turn{}
	if !p.instead(n, a) {
		t = p.Turn(n, a, r)
	}
	d := p.Delivery(n, a, &t)
	return Plan{Key: p.Key, Node: n, Aim: *a, Turn: t, Delivery: d, Drain: p.Drain(n, a, &t, &d)}
}

// Wake plans for a node that has waited for a slot, and has one now.
func (p *Pass) Wake(pl *Plan) {
	if pl.Rest != nil {
		a := p.Aim(pl.Node)
		*pl = p.plan(pl.Node, &a, nil)
	}
}

// Rests reports whether there is nothing to do, and nothing to tell or to wait for but a slot, or a
// change of what was observed.
func (pl *Plan) Rests() bool {
	if pl.Rest != nil {
		return true
	}
	s := pl.Step()
	drains := pl.Drain.Empty || len(pl.Drain.Evict) > 0 || pl.Drain.Uncordon || pl.Drain.Released || pl.Drain.Taint || pl.Drain.Left
	waits := pl.Aim.Due > 0 || pl.Delivery.Due > 0 || pl.Drain.Due > 0 || !pl.Aim.Unwanted.IsZero() || pl.Turn.Waits
	return pl.Node.Node != nil && len(pl.Node.Carriers) == 0 && s.Idle() && !drains && !waits && pl.Delivery.Image == pl.queues() &&
		!pl.Delivery.Works && pl.onlySlots() && pl.Tell() == nil
}

// queues is the image that waits for a slot, and has not failed before; empty: none does.
func (pl *Plan) queues() string {
	if pl.Asks() && len(pl.Holds) > 0 && pl.Delivery.FailedAt.IsZero() && pl.onlySlots() {
		return pl.Delivery.Image
	}
	return ""
}

// onlySlots reports whether nothing else holds the node's change.
func (pl *Plan) onlySlots() bool {
	return !slices.ContainsFunc(pl.AllHolds(), func(h Hold) bool { return h.By != Slots })
}

// Rest is what to remember of a node that rests.
func (p *Pass) Rest(pl *Plan) Rest {
	if pl.Rest != nil {
		return *pl.Rest
	}
	r := Rest{Asks: pl.queues()}
	if p.rolls() {
		r.Part, r.Has = p.part(pl.Node, &pl.Aim)
	}
	return r
}

// next is the order to write: the Delivery's, or the one that comes first.
func next(d *Delivery, r *Drain) *v1beta1.NodeModuleSpec {
	if r.Hold != nil {
		return r.First
	}
	return d.Order
}

// Request is the carrier that the plan asks for, or nil.
func (pl *Plan) Request() *delivery.Request {
	if pl.Drain.Hold != nil {
		return nil
	}
	return pl.Delivery.Create
}

// Asks reports whether the node needs a slot for a new carrier.
func (pl *Plan) Asks() bool {
	return pl.Rest != nil && pl.Rest.Asks != "" || pl.Request() != nil
}

// Needs is the image that the node needs delivered; empty: none.
func (pl *Plan) Needs() string {
	if pl.Rest != nil {
		return pl.Rest.Asks
	}
	return pl.Delivery.Image
}

// AllHolds are those of the stages, and those that were added.
func (pl *Plan) AllHolds() []Hold {
	var all []Hold
	for _, h := range []*Hold{pl.Delivery.Hold, pl.Drain.Hold} {
		if h != nil {
			all = append(all, *h)
		}
	}
	return append(all, pl.Holds...)
}

// Tell is what to report of the node, or nil: what came last.
func (pl *Plan) Tell() *reasons.Problem {
	tell := cmp.Or(pl.Aim.Denied, pl.Delivery.Tell, pl.Turn.Tell)
	for _, h := range pl.AllHolds() {
		if h.Problem != nil && (h.By == Claims || h.By == Pods) {
			tell = h.Problem
		}
	}
	return tell
}

// withheld reports whether nothing may be written. Pods that are evicted after the order keep
// nothing back, and no pods keep back the driver that they need to end.
func (pl *Plan) withheld() bool {
	for _, h := range pl.Holds {
		if h.By != Pods || pl.Drain.Empty && !pl.Drain.Restores {
			return true
		}
	}
	return false
}

// Step is what to do for one node, in the order of its fields.
type Step struct {
	*Plan
	// Discard are carriers to delete.
	Discard []*corev1.Pod
	// Failed is why a delivery failed, or nil.
	Failed *reasons.Problem
	// Create is a carrier to create. Its UID goes into Write.
	Create *delivery.Request
	// Write is the order to apply.
	Write *v1beta1.NodeModuleSpec
	// Remove takes the order out.
	Remove bool
	// Free takes off the finalizer: no order to unload stands, or nobody can carry it out.
	Free bool
}

// Step is what is left to do by the plan and all its holds.
func (pl *Plan) Step() Step {
	n, order := pl.Node, next(&pl.Delivery, &pl.Drain)
	s := Step{Plan: pl, Discard: pl.Delivery.Discard, Failed: pl.Delivery.Failed, Remove: pl.Delivery.Remove}
	s.Free = order == nil && !s.Remove && Finalized(n.Config) && (n.Node == nil || !Unloads(n.Config))
	for _, h := range pl.Holds {
		if h.By == Admission {
			s.Failed = h.Problem
		}
	}
	if !pl.withheld() {
		s.Write, s.Create = order, pl.Request()
	}
	return s
}

// Idle reports whether there is nothing to do.
func (s *Step) Idle() bool {
	return len(s.Discard) == 0 && s.Create == nil && s.Write == nil && !s.Remove && !s.Free
}

// Remains reports whether the node has, or will have after this step, an order or the live kernel
// module: a Module that is being deleted waits for it.
func (s *Step) Remains() bool {
	return s.Node.Node != nil && !s.Remove && (s.Node.follows() || s.Write != nil)
}

// Ended is the carrier that failed: the last of those that go. None where one was refused.
func (s *Step) Ended() types.UID {
	if s.Delivery.Failed == nil || len(s.Discard) == 0 {
		return ""
	}
	return s.Discard[len(s.Discard)-1].UID
}

// Named is the order to write with the carrier that was created for it.
func (s *Step) Named(carrier types.UID) *v1beta1.NodeModuleSpec {
	return carried(&s.Aim, &s.Turn, carrier)
}
