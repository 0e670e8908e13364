// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/rollout"
)

// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceslices,verbs=list
// +kubebuilder:rbac:groups=resource.k8s.io,resources=devicetaintrules,verbs=list;create;delete

// DeviceTaints keep pods off the devices of nodes in change; package devicetaint has them.
type DeviceTaints interface {
	Keep(ctx context.Context, module types.NamespacedName, driver string, begin, stay map[string]bool) error
}

// taints are the nodes whose devices get no new pods: those whose change begins, and those where it goes on.
type taints struct{ begin, stay map[string]bool }

// taint notes that the change of a node begins.
func (pl *planner) taint(node string) {
	if pl.taints.begin == nil {
		pl.taints.begin = map[string]bool{}
	}
	pl.taints.begin[node] = true
}

// changing are the nodes whose order is not carried out yet.
func (pl *planner) changing() map[string]bool {
	nodes := map[string]bool{}
	for i := range pl.snap.nodes {
		if v := &pl.snap.nodes[i]; v.node != nil && v.entry != nil && !v.settled() {
			nodes[v.name] = true
		}
	}
	return nodes
}

// settled reports whether the order is done, has failed, or waits for the next boot: what is live until then serves. One whose kernel module is
// removed and repaired again and again is done.
func (v *view) settled() bool {
	if v.entry.State != "" && v.entry.State != v1beta1.NodeModulePresent {
		return false
	}
	if v.done() {
		return true
	}
	a := v.attempt
	return a != nil && (a.State == v1beta1.AttemptFailed || a.Reason == v1beta1.ReasonRebootRequired)
}

// done reports whether what the entry orders is live.
func (v *view) done() bool {
	if !v.observed() || !v.inKernel() || !rollout.SameBuild(ptr.Deref(v.live.Config, v1beta1.ModuleConfig{}), v.entry.Config) {
		return false
	}
	by := v.live.Observed.Delivery
	return by == "" || by == idOf(v.entry)
}

// taint has the devices tainted before anything is ordered that takes the kernel module away under them, and untainted when it is there again.
func (c *Controller) taint(ctx context.Context, snap *snapshot, p *plan) error {
	if c.options.Taints == nil {
		return nil
	}
	return c.options.Taints.Keep(ctx, snap.key, snap.allocation.driver, p.taints.begin, p.taints.stay)
}
