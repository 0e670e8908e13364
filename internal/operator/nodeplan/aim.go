// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Reasons of orders to unload, as they stand in a NodeModulesConfig.
const (
	// ReasonDeleted: the Module is being deleted, or is gone.
	ReasonDeleted = "Deleted"
	// ReasonDeselected: the Module's selector no longer chooses the node.
	ReasonDeselected = "Deselected"
	// ReasonMappingLost: no kernel mapping matches the node's kernel.
	ReasonMappingLost = "MappingLost"
	// ReasonLoaderRemoved: the Module has no moduleLoader.
	ReasonLoaderRemoved = "LoaderRemoved"
	// ReasonTainted: a taint of the node asks for it.
	ReasonTainted = v1beta1.ReasonTainted
	// ReasonVersionLabel: the node label that drives ordered upgrades has been taken off the node.
	ReasonVersionLabel = "VersionLabelRemoved"
)

// Aim is what a Module wants of a node, whenever its turn comes.
type Aim struct {
	// Order to load, without a carrier; nil: nothing is to be loaded.
	Order *v1beta1.NodeModuleSpec
	// Image is the reference to pull for it, if not the one that it names.
	Image string
	// Unload is the reason of an order to unload; empty: there is none to give.
	Unload string
	// Keep what the node has, and change nothing but whether the order is paused.
	Keep bool
	// Denied is why a ModulePolicy does not allow the order, or nil. A node keeps what it has then.
	Denied *reasons.Problem
	// Wishes of annotations.
	Wishes placement.Wishes
	// Unwanted is since when the node is in its grace, to be remembered; zero: it is not.
	Unwanted time.Time
	// Due is until time alone changes the aim; 0: never.
	Due time.Duration
}

// retry is the last request to try again; zero: there was none.
func (a *Aim) retry() time.Time {
	if a.Wishes.Retry == nil {
		return time.Time{}
	}
	return a.Wishes.Retry.Time
}

// Aims decides what the Module wants of each node that does not rest.
func (p *Pass) Aims(nodes []Node) []Aim {
	aims := make([]Aim, len(nodes))
	for i := range nodes {
		if nodes[i].Rest == nil {
			aims[i] = p.Aim(&nodes[i])
		}
	}
	return aims
}

// Aim decides what the Module wants of a node.
func (p *Pass) Aim(n *Node) Aim {
	m := p.Module
	if n.Node == nil {
		return Aim{}
	}
	a := Aim{Wishes: placement.WishesFor(m, n.Node)}
	switch {
	case a.Wishes.Paused, m == nil && p.survives(n):
		a.Keep = true
		return a
	case m == nil || m.DeletionTimestamp != nil:
		a.Unload = ReasonDeleted
		return a
	case p.Taints.Asks(m, n.Node) != nil: // whoever put it on waits for the unload
		a.Unload = ReasonTainted
		return a
	case m.Spec.ModuleLoader == nil: // perhaps by a slip
		return p.grace(n, a, ReasonLoaderRemoved)
	case !p.Taints.Wanted(m, n.Node, n.follows()):
		return p.grace(n, a, ReasonDeselected)
	case rollout.Labelled(m):
		version, ok := n.Node.Labels[v1beta1.VersionWorkerLabel(m.Namespace, m.Name)]
		if !ok {
			a.Unload = ReasonVersionLabel
			return a
		} else if version != m.Spec.ModuleLoader.Container.Version {
			a.Keep = true
			return a
		}
	}
	return p.load(n, a)
}

// load aims at what the Module wants of the node's kernel, once the image is made.
func (p *Pass) load(n *Node, a Aim) Aim {
	wants := p.Wants.On(&n.Node.Status.NodeInfo)
	switch state := wants.State; {
	case wants.Err != nil:
		a.Keep = true
	case state == nil:
		return p.grace(n, a, ReasonMappingLost)
	default:
		order := p.order(n, state, a.Wishes)
		if a.Denied = p.denied(n, order, &wants); a.Denied == nil && wants.Missing(n.Holds) != nil { // its ModuleImage says why
			a.Keep = true
			return a
		}
		a.Order, a.Image = order, state.Pull
		a.Keep = a.Denied != nil || p.quarantined(n, a.Order)
	}
	return a
}

// denied is why a ModulePolicy does not allow an order, or nil. What was ordered before, or is
// live, goes on, also through a reboot: only what is new is denied.
func (p *Pass) denied(n *Node, order *v1beta1.NodeModuleSpec, wants *desired.Answer) *reasons.Problem {
	if p.Policies.Empty() || n.stands(order) {
		return nil
	}
	return p.Policies.Denied(p.wish(order, wants), p.place(n))
}

// Audited is why a ModulePolicy that is only tried would not allow what is aimed at, or nil.
func (p *Pass) Audited(n *Node, a *Aim) *reasons.Problem {
	if p.Policies.Empty() || a.Order == nil || n.stands(a.Order) {
		return nil
	}
	wants := p.Wants.On(&n.Node.Status.NodeInfo)
	return p.Policies.Audited(p.wish(a.Order, &wants), p.place(n))
}

func (p *Pass) wish(order *v1beta1.NodeModuleSpec, wants *desired.Answer) *modulepolicy.Wish {
	w := &modulepolicy.Wish{Config: &order.Config}
	if r := p.Module.Spec.Rollout; r != nil {
		w.Drain = r.Drain
	}
	w.Builds, w.Unsigned = wants.Made()
	return w
}

func (p *Pass) place(n *Node) *modulepolicy.Place {
	return &modulepolicy.Place{Name: p.Key.Namespace, Namespace: p.Namespace, Node: n.Node.Labels}
}

// stands reports whether the node has been told to load the same already, or has it live.
func (n *Node) stands(order *v1beta1.NodeModuleSpec) bool {
	if o := n.Order; o != nil {
		// What another operator ordered names no delivery.
		same := o.Delivery == nil || o.Delivery.ID == order.Delivery.ID
		return same && rollout.SameBuild(&o.Config, &order.Config) && (!n.unloads() || n.observed())
	}
	return n.observed() && n.Holds(order.Delivery.ID) && n.Live.Config != nil && rollout.SameBuild(n.Live.Config, &order.Config)
}

// survives reports whether a kernel module stays although its Module is gone: no order names it, or
// it was ordered before the cluster had this definition of Modules, and the one before took all
// Modules along. Nobody wished either gone. Applying and deleting the Module unloads it.
func (p *Pass) survives(n *Node) bool {
	if n.Order == nil {
		return n.Live != nil
	}
	return !n.unloads() && n.Config.CreationTimestamp.Before(&p.Defined)
}

// grace unloads after the grace. An order to unload that stands is not taken back for it.
func (p *Pass) grace(n *Node, a Aim, reason string) Aim {
	a.Unload = reason
	grace := rollout.Grace(p.Module)
	if grace <= 0 || !n.follows() || n.unloads() {
		return a
	}
	since, known := p.Memory.Unwanted[n.Node.UID]
	if !known {
		since = p.Now
	}
	a.Unwanted = since
	if left := since.Add(grace).Sub(p.Now); left > 0 {
		a.Keep, a.Due = true, left
	}
	return a
}

// quarantined reports whether an order is not given because it took another node down. A node that
// has the order, or the very thing live, goes on as it is.
func (p *Pass) quarantined(n *Node, order *v1beta1.NodeModuleSpec) bool {
	if _, struck := p.Verdict.Held[order.Delivery.ID]; !struck {
		return false
	}
	if o := n.Order; o != nil {
		return deliveryOf(o) != order.Delivery.ID || n.unloads() && !n.observed()
	}
	return !n.observed() || !n.Holds(order.Delivery.ID) || n.Live.Config == nil || !rollout.SameBuild(n.Live.Config, &order.Config)
}

// Turn is whether a node may change now. The zero value is that it may.
type Turn struct {
	// Waits: until its turn comes, the node keeps what it has.
	Waits bool
	// Stay is the order that it keeps until then; nil: it has none to keep.
	Stay *v1beta1.NodeModuleSpec
	// Ahead: the delivery is brought before the turn.
	Ahead bool
	// Tell is what to report of the node, or nil.
	Tell *reasons.Problem
	// Awaited is for how long a node that has its change stays cordoned for another Module's; 0: it
	// does not.
	Awaited time.Duration
}

// rolls reports whether changes of the Module go from node to node.
func (p *Pass) rolls() bool {
	m := p.Module
	return m != nil && m.DeletionTimestamp == nil && !rollout.Labelled(m)
}

// Parts are the nodes' parts of the rollout; false: every node may change at once.
func (p *Pass) Parts(nodes []Node, aims []Aim) (parts []rollout.Node, rolls bool) {
	if !p.rolls() {
		return nil, false
	}
	some := 0
	for i := range nodes {
		if nodes[i].Rest != nil && nodes[i].Rest.Has || aims[i].Order != nil {
			some++
		}
	}
	parts = make([]rollout.Node, 0, some)
	for i := range nodes {
		if part, has := p.part(&nodes[i], &aims[i]); has {
			parts = append(parts, part)
		}
	}
	return parts, true
}

// part is a node's part of the rollout; false: it has none.
func (p *Pass) part(n *Node, a *Aim) (rollout.Node, bool) {
	switch {
	case n.Node == nil:
		return rollout.Node{}, false
	case n.Rest != nil:
		return n.Rest.Part, n.Rest.Has
	}
	waited := p.Memory.Drains[n.Name]
	f := rollout.Facts{
		Node: n.Node, Entry: n.Entry,
		// What goes to no further node does not wait for a turn.
		Paused: a.Wishes.Paused || a.Order != nil && a.Keep,
		Begun:  drain.Marked(n.Node, p.Key) && !waited.over(),
		Late:   a.Order != nil && p.late(n, a),
		Later:  a.Unload != "" && a.Keep,
		Passed: waited.Passed,
	}
	wants := p.Wants.On(&n.Node.Status.NodeInfo)
	return desired.Part(p.Module, &wants, p.Taints, f)
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
		t := Turn{}
		if r != nil && !r.Awaited[n.Name].IsZero() {
			t.Awaited = max(r.Awaited[n.Name].Sub(p.Now), 0)
		}
		return t
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
