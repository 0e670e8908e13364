// SPDX-License-Identifier: Apache-2.0

// Package manager does what a kube-controller-manager does, a write at a time: it makes the pods of
// DaemonSets, deletes what has lost its owners or its node, and says by taints and by pods that a
// node is not Ready. It evicts nothing. Where a DaemonSet's pod may run, and what it looks like,
// Kubernetes' own code says. A pod has its node from the beginning, so that there is no scheduler.
package manager

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/sim/cluster"
)

// quarantine is how long a Node may be away before its pods are deleted.
const quarantine = 40 * time.Second

// Manager is one manager. It is not for use by several goroutines.
type Manager struct {
	Cluster *cluster.Cluster
	Clock   clock.PassiveClock

	made    int                  // pods of DaemonSets, by which they are named
	missing map[string]time.Time // Nodes that pods name and that are not there: since when
	// Revisions at which there was nothing to do.
	placed, collected, marked int64
}

// The resources that own others, or are owned, with the kinds by which they are deleted.
var (
	orders  = schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "nodemodulesconfigs"}
	modules = schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "modules"}
	owning  = []schema.GroupResource{cluster.Nodes, modules, orders, cluster.DaemonSets}
	owned   = []schema.GroupResource{orders, cluster.Pods}
	kinds   = map[schema.GroupResource]schema.GroupVersionKind{
		cluster.Pods: {Version: "v1", Kind: "Pod"},
		orders:       v1beta1.GroupVersion.WithKind("NodeModulesConfig"),
	}
)

// Collect deletes one object whose owners are all gone, or one pod whose Node has been away for a
// while; false: there is none.
func (m *Manager) Collect(ctx context.Context) bool {
	now := m.Cluster.Revision()
	if m.collected == now {
		return false
	}
	owners := map[types.UID]bool{}
	for _, resource := range owning {
		for _, o := range m.Cluster.Metadata(resource) {
			owners[o.UID] = true
		}
	}
	for _, resource := range owned {
		for _, o := range m.Cluster.Metadata(resource) {
			if len(o.OwnerReferences) > 0 && o.DeletionTimestamp == nil && !hasOwner(&o, owners) {
				o.SetGroupVersionKind(kinds[resource])
				must(client.IgnoreNotFound(m.Cluster.Admin.Delete(ctx, &o, client.Preconditions{UID: &o.UID})))
				return true
			}
		}
	}
	if m.strays(ctx) {
		return true
	}
	if len(m.missing) == 0 {
		m.collected = now
	}
	return false
}

func hasOwner(o *metav1.PartialObjectMetadata, owners map[types.UID]bool) bool {
	for _, owner := range o.OwnerReferences {
		if owners[owner.UID] {
			return true
		}
	}
	return false
}

// strays deletes one pod whose Node has been away for a while.
func (m *Manager) strays(ctx context.Context) bool {
	there, missing := map[string]bool{}, map[string]time.Time{}
	for _, n := range cluster.All[*corev1.Node](m.Cluster, cluster.Nodes) {
		there[n.Name] = true
	}
	deleted := false
	for _, pod := range cluster.All[*corev1.Pod](m.Cluster, cluster.Pods) {
		node := pod.Spec.NodeName
		if there[node] {
			continue
		}
		since, known := m.missing[node]
		if !known {
			since = m.Clock.Now()
		}
		missing[node] = since
		if !deleted && m.Clock.Since(since) >= quarantine {
			must(client.IgnoreNotFound(m.Cluster.Admin.Delete(ctx, pod.DeepCopy(),
				&client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}})))
			deleted = true
		}
	}
	m.missing = missing
	return deleted
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
