// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/test/sim/cluster"
)

// set is a DaemonSet, and what there is of it.
type set struct {
	*appsv1.DaemonSet
	hash       string
	generation *int64
	nodes      []*corev1.Node
	pods       map[string][]*corev1.Pod // by node, those that go included
}

// DaemonSets makes or deletes one pod of a DaemonSet, or writes the status of one; false: there was
// nothing to do. A DaemonSet that is being deleted is left alone.
func (m *Manager) DaemonSets(ctx context.Context) bool {
	now := m.Cluster.Revision()
	if m.placed == now {
		return false
	}
	for _, ds := range cluster.All[*appsv1.DaemonSet](m.Cluster, cluster.DaemonSets) {
		if ds.DeletionTimestamp != nil {
			continue
		}
		s := m.set(ds)
		if m.place(ctx, s) || m.roll(ctx, s) || m.count(ctx, s) {
			return true
		}
	}
	m.placed = now
	return false
}

func (m *Manager) set(ds *appsv1.DaemonSet) *set {
	s := &set{DaemonSet: ds, hash: controller.ComputeHash(&ds.Spec.Template, ds.Status.CollisionCount),
		nodes: cluster.All[*corev1.Node](m.Cluster, cluster.Nodes), pods: map[string][]*corev1.Pod{}}
	if generation, err := util.GetTemplateGeneration(ds); err == nil {
		s.generation = generation
	}
	for _, pod := range cluster.All[*corev1.Pod](m.Cluster, cluster.Pods) {
		if metav1.IsControlledBy(pod, ds) {
			s.pods[pod.Spec.NodeName] = append(s.pods[pod.Spec.NodeName], pod)
		}
	}
	return s
}

// place makes one pod that a node lacks, or deletes one that it should not have.
func (m *Manager) place(ctx context.Context, s *set) bool {
	for _, n := range s.nodes {
		should, stay := daemon.NodeShouldRunDaemonPod(logr.Discard(), n, s.DaemonSet)
		pods := s.pods[n.Name]
		switch {
		case should && len(pods) == 0:
			m.create(ctx, s, n.Name)
			return true
		case stay:
			if running := going(pods, false); len(running) > 1 {
				m.delete(ctx, running[1])
				return true
			}
		default:
			if running := going(pods, false); len(running) > 0 {
				m.delete(ctx, running[0])
				return true
			}
		}
	}
	return false
}

// going are the pods that are being deleted, or the others, the oldest first.
func going(pods []*corev1.Pod, are bool) (some []*corev1.Pod) {
	for _, pod := range pods {
		if (pod.DeletionTimestamp != nil) == are {
			some = append(some, pod)
		}
	}
	slices.SortStableFunc(some, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return some
}

func (m *Manager) create(ctx context.Context, s *set, node string) {
	m.made++
	template := util.CreatePodTemplate(s.Spec.Template, s.generation, s.hash)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprintf("%s-%05d", s.Name, m.made),
		Labels: template.Labels, Annotations: template.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}},
		Spec: template.Spec}
	pod.Spec.Affinity = util.ReplaceDaemonSetPodNodeNameNodeAffinity(pod.Spec.Affinity, node)
	pod.Spec.NodeName = node
	must(m.Cluster.Admin.Create(ctx, pod))
}

func (m *Manager) delete(ctx context.Context, pod *corev1.Pod) {
	must(client.IgnoreNotFound(m.Cluster.Admin.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID})))
}

// updated says whether a pod is of the DaemonSet's template.
func (s *set) updated(pod *corev1.Pod) bool { return util.IsPodUpdated(pod, s.hash, s.generation) }

// roll deletes one pod of an earlier template, if no more nodes lack a ready pod than may.
func (m *Manager) roll(ctx context.Context, s *set) bool {
	if s.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return false
	}
	desired, unready := 0, 0
	var old, broken *corev1.Pod
	for _, n := range s.nodes {
		should, _ := daemon.NodeShouldRunDaemonPod(logr.Discard(), n, s.DaemonSet)
		if should {
			desired++
		}
		running := going(s.pods[n.Name], false)
		if !should && len(running) == 0 {
			continue
		}
		switch {
		case len(running) == 0:
			unready++
		case !s.updated(running[0]) && !podutil.IsPodReady(running[0]):
			broken = running[0]
			unready++
		case !podutil.IsPodReady(running[0]):
			unready++
		case !s.updated(running[0]) && old == nil:
			old = running[0]
		}
	}
	if broken != nil {
		m.delete(ctx, broken)
		return true
	}
	most, err := util.UnavailableCount(s.DaemonSet, desired)
	must(err)
	if old == nil || unready >= max(most, 1) {
		return false
	}
	m.delete(ctx, old)
	return true
}

// count writes the status, if it is another.
func (m *Manager) count(ctx context.Context, s *set) bool {
	now := s.Status
	now.DesiredNumberScheduled, now.CurrentNumberScheduled, now.NumberMisscheduled, now.NumberReady = 0, 0, 0, 0
	now.UpdatedNumberScheduled = 0
	for _, n := range s.nodes {
		should, _ := daemon.NodeShouldRunDaemonPod(logr.Discard(), n, s.DaemonSet)
		pods := slices.Concat(going(s.pods[n.Name], false), going(s.pods[n.Name], true))
		if !should && len(pods) > 0 {
			now.NumberMisscheduled++
		}
		if !should {
			continue
		}
		now.DesiredNumberScheduled++
		if len(pods) == 0 {
			continue
		}
		now.CurrentNumberScheduled++
		if podutil.IsPodReady(pods[0]) {
			now.NumberReady++
		}
		if s.updated(pods[0]) {
			now.UpdatedNumberScheduled++
		}
	}
	now.NumberAvailable = now.NumberReady
	now.NumberUnavailable = now.DesiredNumberScheduled - now.NumberAvailable
	now.ObservedGeneration = s.Generation
	if equal(&now, &s.Status) {
		return false
	}
	told := s.DeepCopy()
	told.Status = now
	must(m.Cluster.Admin.Status().Update(ctx, told))
	return true
}

func equal(a, b *appsv1.DaemonSetStatus) bool {
	return a.DesiredNumberScheduled == b.DesiredNumberScheduled && a.CurrentNumberScheduled == b.CurrentNumberScheduled &&
		a.NumberMisscheduled == b.NumberMisscheduled && a.NumberReady == b.NumberReady && a.UpdatedNumberScheduled == b.UpdatedNumberScheduled &&
		a.NumberAvailable == b.NumberAvailable && a.NumberUnavailable == b.NumberUnavailable && a.ObservedGeneration >= b.ObservedGeneration &&
		b.ObservedGeneration >= a.ObservedGeneration
}
