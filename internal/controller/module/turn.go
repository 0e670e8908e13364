// SPDX-License-Identifier: Apache-2.0

package module

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/desired"
	"github.com/drover-project/drover/internal/drain"
	"github.com/drover-project/drover/internal/rollout"
)

// aims are what the Module wants of each node now: where its turn has not come, that it keeps what it has.
func (pl *planner) aims() []aim {
	aims := make([]aim, len(pl.snap.nodes))
	for i := range pl.snap.nodes {
		aims[i] = pl.aim(&pl.snap.nodes[i])
	}
	m := pl.snap.module
	if m == nil || m.DeletionTimestamp != nil || m.Spec.ModuleLoader == nil || rollout.Labelled(m) {
		return aims
	}
	var nodes []rollout.Node
	for i := range aims {
		if n, has := pl.part(&pl.snap.nodes[i], &aims[i]); has {
			nodes = append(nodes, n)
		}
	}
	policy := rollout.PolicyOf(m)
	pl.seen.Date(pl.snap.key, nodes, policy, pl.now)
	pl.rollout = rollout.Make(nodes, policy, pl.now)
	for i := range aims {
		if v, a := &pl.snap.nodes[i], &aims[i]; !a.keep && pl.rollout.Hold[v.name] {
			pl.hold(v, a)
			if told := pl.drained(v.name).told; told != nil {
				pl.tell(v.name, told)
			}
		}
	}
	return aims
}

// hold leaves a node what it has until its turn comes. What annotations ask for reaches it all the same.
func (pl *planner) hold(v *view, a *aim) {
	if a.order == nil {
		a.keep = true
		return
	}
	a.ahead = pl.rollout.Deliver[v.name]
	stay := *pl.excused(dressed(v.entry, a.wishes), v)
	if next := stay.Next; next != nil && next.ID != a.order.Delivery.ID {
		stay.Next = nil
	}
	a.stay = &stay
}

// carriedBy is the entry to write when a carrier brings what the order needs: the order or, ahead of its turn, the entry that stays.
func (a *aim) carriedBy(carrier types.UID) *v1beta1.NodeModuleSpec {
	by := &v1beta1.Delivery{ID: a.order.Delivery.ID, CarrierUID: carrier}
	if a.stay == nil {
		want := *a.order
		want.Delivery = by
		return &want
	}
	want := *a.stay
	want.Next = by
	return &want
}

// delivered is the entry to write when the node holds what the order needs.
func (a *aim) delivered(v *view) *v1beta1.NodeModuleSpec {
	if a.stay != nil {
		return a.stay
	}
	return a.carriedBy(v.carrierUID(a.order.Delivery.ID))
}

// carrierUID is the carrier that the entry names for a delivery.
func (v *view) carrierUID(id string) types.UID {
	if v.entry == nil {
		return ""
	}
	for _, d := range []*v1beta1.Delivery{v.entry.Delivery, v.entry.Next} {
		if d != nil && d.ID == id {
			return d.CarrierUID
		}
	}
	return ""
}

// carried is the part of the entry to write that names the carrier to create.
func (s *step) carried() *v1beta1.Delivery {
	if next := s.write.Next; next != nil && next.ID == s.request.ID {
		return next
	}
	return s.write.Delivery
}

// part is a node's part of the rollout; false: it has none.
func (pl *planner) part(v *view, a *aim) (rollout.Node, bool) {
	if v.node == nil {
		return rollout.Node{}, false
	}
	drained := pl.drained(v.name)
	f := rollout.Facts{
		Node: v.node, Order: v.entry, Live: v.live, Attempt: v.attempt,
		// What goes to no further node does not wait for a turn.
		Paused: a.wishes.Paused || a.order != nil && a.keep,
		Begun:  drain.Marked(v.node, pl.snap.key) && !drained.over(),
		Late:   a.order != nil && pl.late(v, a),
		Later:  a.leave != "" && a.keep,
		Passed: drained.passed,
	}
	if v.config != nil {
		f.Artifacts = v.config.Status.Artifacts
	}
	wants := pl.wants(v)
	return desired.Part(pl.snap.module, &wants, f)
}

// late reports whether a delivery does not come: it failed not long ago, the carrier does not start, or nobody takes what it has ready.
func (pl *planner) late(v *view, a *aim) bool {
	if pl.resting(v.name, a.order.Config.ContainerImage, a.asked()) {
		return true
	}
	name := delivery.CarrierName(pl.snap.key.Namespace, pl.snap.key.Name, v.name, a.order.Delivery.ID)
	for _, pod := range v.carriers {
		if pod.Name == name && (delivery.ProblemOf(pod) != nil || pl.stalled(pod) || pl.uncollected(pod)) {
			return true
		}
	}
	return false
}
