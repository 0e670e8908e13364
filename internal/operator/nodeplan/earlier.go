// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// halted notes, while a failure or a pause halts the rollout, which earlier build serves on each
// platform: the one of most nodes. A build that may be bad on every node goes to none that is new
// either, such as those that an autoscaler brings meanwhile.
func (p *Pass) halted(nodes []Node, r *rollout.Plan) {
	p.earlier = nil
	if r == nil || r.Halt == "" {
		return
	}
	type build struct {
		on kernel.Platform
		id string
	}
	number, orders := map[build]int{}, map[build]*v1beta1.NodeModuleSpec{}
	for i := range nodes {
		n := &nodes[i]
		on, ok := p.servesEarlier(n)
		if !ok {
			continue
		}
		b := build{on, n.Order.Delivery.ID}
		number[b]++
		orders[b] = n.Order
	}
	builds := slices.SortedFunc(maps.Keys(number), func(a, b build) int {
		return cmp.Or(cmp.Compare(number[a], number[b]), cmp.Compare(a.id, b.id))
	})
	p.earlier = map[kernel.Platform]*v1beta1.NodeModuleSpec{}
	for _, b := range builds { // the last of a platform is that of most nodes
		p.earlier[b.on] = orders[b]
	}
}

// servesEarlier reports whether a node has an earlier build live, as it was ordered, whose image
// can still be told from what the Module asks for now.
func (p *Pass) servesEarlier(n *Node) (on kernel.Platform, ok bool) {
	if n.Node == nil || n.Order == nil || n.unloads() || n.Order.Delivery == nil || !n.inKernel() || !n.observed() ||
		!rollout.SameBuild(&n.Order.Config, n.Live.Config) {
		return on, false
	}
	want := p.Wants.On(&n.Node.Status.NodeInfo).State
	if want == nil || want.Delivery == n.Order.Delivery.ID || want.Config.ContainerImage == n.Order.Config.ContainerImage {
		return on, false
	}
	on, err := kernel.PlatformOf(&n.Node.Status.NodeInfo)
	return on, err == nil
}

// instead gives a node without a kernel module the earlier build, as an order that does not wait
// for a turn; false: it goes on as the rollout says. Once it holds that, it is like any other node
// that waits.
func (p *Pass) instead(n *Node, a *Aim) bool {
	if p.earlier == nil || n.Node == nil || a.Order == nil || a.Keep || n.inKernel() {
		return false
	}
	on, err := kernel.PlatformOf(&n.Node.Status.NodeInfo)
	earlier := p.earlier[on]
	if err != nil || earlier == nil {
		return false
	}
	id := earlier.Delivery.ID
	stands := n.Order != nil && !n.unloads() && kernel.SameVersion(n.Order.Config.KernelVersion, on.Kernel)
	if stands && (deliveryOf(n.Order) != id || n.Holds(id)) {
		return false
	}
	order := wished(*earlier, a.Wishes)
	order.ModuleItem = a.Order.ModuleItem
	order.Version, order.State, order.Reason, order.Next = earlier.Version, "", "", nil
	order.Delivery, order.Excused = &v1beta1.Delivery{ID: id}, p.excused(n, id)
	wants := p.Wants.On(&n.Node.Status.NodeInfo)
	a.Order, a.Image = order, ""
	a.Denied = p.denied(n, order, &wants)
	a.Keep = a.Denied != nil || p.quarantined(n, order)
	return true
}
