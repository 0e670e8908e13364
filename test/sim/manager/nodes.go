// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/test/sim/cluster"
)

// conditional are the taints that follow from a Node's state.
var conditional = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable}

// Nodes gives one Node the taints of its state, or has one pod of a node that is not Ready say that
// it is not ready; false: there was nothing to do.
func (m *Manager) Nodes(ctx context.Context) bool {
	now := m.Cluster.Revision()
	if m.marked == now {
		return false
	}
	silent := map[string]bool{}
	for _, n := range cluster.All[*corev1.Node](m.Cluster, cluster.Nodes) {
		if m.taint(ctx, n) {
			return true
		}
		silent[n.Name] = readiness(n) != corev1.ConditionTrue && readiness(n) != ""
	}
	for _, pod := range cluster.All[*corev1.Pod](m.Cluster, cluster.Pods) {
		if silent[pod.Spec.NodeName] && podutil.IsPodReady(pod) {
			told := pod.DeepCopy()
			_, c := podutil.GetPodCondition(&told.Status, corev1.PodReady)
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(m.Clock.Now())
			must(m.Cluster.Admin.Status().Update(ctx, told))
			return true
		}
	}
	m.marked = now
	return false
}

// readiness is the status of a Node's Ready condition; empty: it has none.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// taint gives a Node the taints of its state; false: it has them.
func (m *Manager) taint(ctx context.Context, n *corev1.Node) bool {
	var keys []string
	switch readiness(n) {
	case corev1.ConditionFalse:
		keys = append(keys, corev1.TaintNodeNotReady)
	case corev1.ConditionUnknown:
		keys = append(keys, corev1.TaintNodeUnreachable)
	}
	if n.Spec.Unschedulable {
		keys = append(keys, corev1.TaintNodeUnschedulable)
	}
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
		return slices.Contains(conditional, t.Key) && t.Effect == corev1.TaintEffectNoSchedule && !slices.Contains(keys, t.Key)
	})
	for _, key := range keys {
		if !slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == corev1.TaintEffectNoSchedule }) {
			taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	if slices.Equal(taints, n.Spec.Taints) {
		return false
	}
	told := n.DeepCopy()
	told.Spec.Taints = taints
	must(m.Cluster.Admin.Patch(ctx, told, client.MergeFrom(n)))
	return true
}
