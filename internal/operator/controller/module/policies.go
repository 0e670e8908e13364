// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/policies"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
)

// actionPolicy is what an event says was being done when a policy that is only tried was asked.
const actionPolicy = "Audit"

// +kubebuilder:rbac:groups=drover.dev,resources=modulepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// policies reads the ModulePolicies and, if there are any, the labels of a Module's namespace. Of a
// namespace that is gone, all that is left is to unload, which no policy concerns.
func (c *Controller) policies(ctx context.Context, snap *snapshot) error {
	live := c.live
	if snap.leaving() {
		live = nil
	}
	var err error
	snap.Policies, snap.Namespace, err = policies.Read(ctx, c.client, live, snap.Key.Namespace)
	return err
}

// namespaceEvent queues the Modules of a namespace whose labels change: policies choose by them.
func (c *Controller) namespaceEvent(ctx context.Context, q watch.Queue, before, now *metav1.PartialObjectMetadata) {
	if before == nil || now == nil || maps.Equal(before.Labels, now.Labels) {
		return
	}
	c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return m.Namespace == now.Name })
}

// reselected reports whether a ModulePolicy chooses a node by its labels now and did not before, or
// the other way round.
func (c *Controller) reselected(ctx context.Context, before, now *corev1.Node) bool {
	var list v1alpha1.ModulePolicyList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return true
	}
	return slices.ContainsFunc(list.Items, func(p v1alpha1.ModulePolicy) bool {
		chooses := func(n *corev1.Node) bool { return modulepolicy.Selects(p.Spec.NodeSelector, n.Labels) }
		return chooses(before) != chooses(now)
	})
}

// audit tells, once per text, what policies that are only tried would not allow.
func (c *Controller) audit(p *plan) {
	if p.leaving() {
		c.audited.Delete(p.Key)
		return
	}
	text := ""
	for i := range p.plans {
		pl := &p.plans[i]
		if found := p.Audited(pl.Node, &pl.Aim); found != nil {
			text = found.Message
			break
		}
	}
	if text == "" {
		c.audited.Delete(p.Key)
		return
	}
	if told, _ := c.audited.Swap(p.Key, text); told != text {
		c.options.Recorder.Warn(p.Module, v1beta1.ReasonPolicyDenied, actionPolicy, "would be denied: "+text)
	}
}
