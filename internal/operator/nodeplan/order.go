// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// order is the one to load what is wanted, without a carrier.
func (p *Pass) order(n *Node, state *desired.State, w placement.Wishes) *v1beta1.NodeModuleSpec {
	m := p.Module
	container := &m.Spec.ModuleLoader.Container
	return wished(v1beta1.NodeModuleSpec{
		ModuleItem: v1beta1.ModuleItem{
			Namespace:          m.Namespace,
			Name:               m.Name,
			ServiceAccountName: delivery.ServiceAccount(m),
			ImageRepoSecret:    m.Spec.ImageRepoSecret,
			Tolerations:        m.Spec.Tolerations,
			Version:            container.Version,
		},
		Config:          state.Config,
		Delivery:        &v1beta1.Delivery{ID: state.Delivery},
		UnloadPolicy:    container.UnloadPolicy,
		BlacklistInTree: container.BlacklistInTree,
		ReadyWhen:       checksOnNode(container.ReadyWhen),
		Excused:         p.excused(n, state.Delivery),
	}, w)
}

// checksOnNode are the checks that the node's agent makes; commands run in the plugin's pod.
func checksOnNode(all []v1beta1.ReadyCheck) []v1beta1.ReadyCheck {
	var checks []v1beta1.ReadyCheck
	for i := range all {
		if len(all[i].Command) == 0 {
			checks = append(checks, all[i])
		}
	}
	return checks
}

// excused is until when the order says that strikes of a delivery came from outside. What it said
// stays: it says what the strike of a node that comes back late belongs to.
func (p *Pass) excused(n *Node, id string) *metav1.Time {
	var until *metav1.Time
	if n.Order != nil && n.Order.Delivery != nil && n.Order.Delivery.ID == id {
		until = n.Order.Excused
	}
	if at, now := p.Verdict.Excuse[n.Name]; now && (until == nil || until.Time.Before(at)) {
		until = &metav1.Time{Time: at}
	}
	return until
}

// stay is the order that a node keeps until its turn comes, with what annotations ask for; nil: it
// has none that loads. What lost its order, or was told to go and has not yet, is claimed by one to
// stay as it is. So is what is live under a paused order that is withdrawn: under that, the agent
// would not fetch what comes next.
func (p *Pass) stay(n *Node, a *Aim) *v1beta1.NodeModuleSpec {
	switch {
	case (n.Order == nil || n.inKernel() && (n.unloads() || p.withdrawn(n))) && n.observed() &&
		n.Live.Config != nil && n.Live.Observed.Delivery != "":
		claim := *a.Order
		claim.Config, claim.Version = *n.Live.Config, n.Live.Version
		claim.Delivery, claim.Excused = &v1beta1.Delivery{ID: n.Live.Observed.Delivery}, nil
		return &claim
	case n.Order == nil, n.unloads(), n.Order.Delivery == nil:
		return nil
	}
	stay := wished(*n.Order, a.Wishes)
	stay.Paused = stay.Paused || p.withdrawn(n)
	stay.Excused = p.excused(n, deliveryOf(n.Order))
	if stay.Next != nil && stay.Next.ID != a.Order.Delivery.ID {
		stay.Next = nil
	}
	return stay
}

// unload orders to unload, and removes the order when the agent has answered.
func (p *Pass) unload(n *Node, a *Aim) (order *v1beta1.NodeModuleSpec, remove bool) {
	switch {
	case n.Order == nil && n.Live != nil:
		// Unclaimed. With its Module it leaves by an order like any other.
		return &v1beta1.NodeModuleSpec{
			ModuleItem: n.Live.ModuleItem, Config: ptr.Deref(n.Live.Config, v1beta1.ModuleConfig{}),
			State: v1beta1.NodeModuleAbsent, Reason: a.Unload,
		}, false
	case n.Order == nil:
		// Left over when two Modules left at the same time.
		return nil, n.Config != nil && n.Attempt != nil && Bare(n.Config)
	case n.Answered():
		return nil, true
	}
	// An order to unload follows the Module's policy for as long as there is one to ask.
	policy := n.Order.UnloadPolicy
	if m := p.Module; m != nil && m.Spec.ModuleLoader != nil {
		policy = m.Spec.ModuleLoader.Container.UnloadPolicy
	}
	if n.unloads() && (Finalized(n.Config) || !Finalizable(n.Config)) && n.Order.UnloadPolicy == policy &&
		n.Order.Paused == a.Wishes.Paused && n.Order.Retry.Equal(a.Wishes.Retry) {
		return nil, false
	}
	order = wished(*n.Order, a.Wishes)
	order.State, order.Reason, order.Next, order.UnloadPolicy = v1beta1.NodeModuleAbsent, a.Unload, nil, policy
	return order, false
}

// wished is an order with what annotations ask for.
func wished(order v1beta1.NodeModuleSpec, w placement.Wishes) *v1beta1.NodeModuleSpec {
	order.Paused, order.SkipChecks, order.Retry = w.Paused, w.SkipChecks, w.Retry
	return &order
}

// withdrawn reports whether an order is paused, what it names is not live, and the Module asks for
// something else by now: the end of the pause does not load it.
func (p *Pass) withdrawn(n *Node) bool {
	if p.Module == nil || rollout.Labelled(p.Module) || n.Order == nil || !n.Order.Paused || n.unloads() {
		return false
	}
	if n.inKernel() && (!n.Differs() || n.Live.Observed.Delivery == "") {
		return false
	}
	want := p.Wants.On(&n.Node.Status.NodeInfo).State
	return want == nil || want.Delivery != deliveryOf(n.Order) || !rollout.SameBuild(&want.Config, &n.Order.Config)
}

// paused is the order with a pause, or its end; nil: it says so, or Drover did not write it.
func (n *Node) paused(paused bool) *v1beta1.NodeModuleSpec {
	o := n.Order
	if o == nil || o.Paused == paused || o.Delivery == nil && !n.unloads() {
		return nil
	}
	order := *o
	order.Paused = paused
	return &order
}

// inState is the node's order with another state.
func (n *Node) inState(state v1beta1.NodeModuleState, reason string) *v1beta1.NodeModuleSpec {
	order := *n.Order
	order.State, order.Reason = state, reason
	return &order
}

// unlessRight is an order, or nil if it, and the object's owner and labels, stand already.
func (n *Node) unlessRight(order *v1beta1.NodeModuleSpec) *v1beta1.NodeModuleSpec {
	want := *order
	if n.Order != nil {
		have := *n.Order
		if have.State != "" {
			// Another writer may own the state too, so that to leave it out would not take it back.
			// What is left of the reason then means nothing.
			want.State = v1beta1.NodeModulePresent
			if have.State == want.State {
				have.Reason = ""
			}
		}
		if owned(n.Config, n.Node.UID) && labelled(n.Config, &want) && equality.Semantic.DeepEqual(&have, &want) {
			return nil
		}
	}
	return &want
}

func owned(config *v1beta1.NodeModulesConfig, node types.UID) bool {
	return slices.ContainsFunc(config.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == node })
}

// Labels are those by which clients find the NodeModulesConfigs of a Module.
func Labels(order *v1beta1.NodeModuleSpec) map[string]string {
	labels := map[string]string{v1beta1.InUseLabel(order.Namespace, order.Name): ""}
	if order.State != v1beta1.NodeModuleAbsent {
		labels[v1beta1.ConfiguredLabel(order.Namespace, order.Name)] = ""
	}
	return labels
}

func labelled(config *v1beta1.NodeModulesConfig, order *v1beta1.NodeModuleSpec) bool {
	for label := range Labels(order) {
		if _, ok := config.Labels[label]; !ok {
			return false
		}
	}
	return true
}

// disturbs reports whether the agent unloads for an order. What another operator has loaded, whose
// orders name no delivery, it adopts or does not touch: then what it has seen itself counts. An
// order for what is live takes nothing out, whatever stands.
func (n *Node) disturbs(order *v1beta1.NodeModuleSpec) bool {
	before := n.Order
	switch {
	case n.lives(order):
		return false
	case before == nil || order.State == v1beta1.NodeModuleAbsent:
		return order.State == v1beta1.NodeModuleAbsent && (before == nil || before.State != v1beta1.NodeModuleAbsent)
	case before.State == v1beta1.NodeModuleAbsent:
		return false
	case !rollout.SameBuild(&before.Config, &order.Config):
		return true
	case before.UnloadPolicy == v1beta1.UnloadOnReboot && order.UnloadPolicy != v1beta1.UnloadOnReboot && n.Differs():
		return true // it waited for a boot, and does no longer
	}
	by := deliveryOf(before)
	if by == "" && n.observed() {
		by = n.Live.Observed.Delivery
	}
	return by != "" && by != deliveryOf(order)
}

// lives reports whether what an order loads is live in this boot, by the same delivery.
func (n *Node) lives(order *v1beta1.NodeModuleSpec) bool {
	return order.State != v1beta1.NodeModuleAbsent && n.inKernel() && n.observed() && n.Live.Observed.Delivery != "" &&
		n.Live.Observed.Delivery == deliveryOf(order) && rollout.SameBuild(n.Live.Config, &order.Config)
}

// deliveryOf is the identity of an order's delivery; empty: it has none.
func deliveryOf(order *v1beta1.NodeModuleSpec) string {
	if order.Delivery == nil {
		return ""
	}
	return order.Delivery.ID
}

// standing are the pods that are not being deleted yet.
func standing(pods ...*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), drain.Leaving)
}
