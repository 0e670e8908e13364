// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// patiently gives a Module a deadline.
func patiently(d time.Duration) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) { m.Spec.DeletionTimeout = &metav1.Duration{Duration: d} }
}

// dies cuts a node's power cord, and says what the cluster would say of it within a minute.
func (s *scenario) dies(node string) {
	s.Helper()
	s.does(node, "vanish")
	s.eventually(node+" counts as lost", func(ctx context.Context) error {
		n := &corev1.Node{}
		if err := shared.Admin.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", metav1.Now()
			}
		}
		return shared.Admin.Status().Update(ctx, n)
	})
}

// told objects unless an event of the reason about the Module says all the words.
func (s *scenario) told(ctx context.Context, reason string, words ...string) error {
	var events eventsv1.EventList
	if err := shared.Admin.List(ctx, &events, client.InNamespace(s.key.Namespace)); err != nil {
		return err
	}
	notes := []string{}
	for i := range events.Items {
		e := &events.Items[i]
		if e.Reason != reason || e.Regarding.Name != s.key.Name {
			continue
		}
		missing := ""
		for _, word := range words {
			if !strings.Contains(e.Note, word) {
				missing = word
			}
		}
		if missing == "" {
			return nil
		}
		notes = append(notes, e.Note)
	}
	return fmt.Errorf("no event %s says %q; there are %q", reason, words, notes)
}

// away objects unless the Module itself is gone.
func (s *scenario) away(ctx context.Context) error {
	err := shared.Admin.Get(ctx, s.key, &v1beta1.Module{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("Module %s is there (%w)", s.key, err)
}

// TestLifecycleBusyAndDeadNode: the Module goes at its deadline and names both. Both unload as soon
// as they can.
func TestLifecycleBusyAndDeadNode(t *testing.T) {
	s := given(t, "busy-dead")
	const busy, dead, well = "hollow-1", "hollow-2", "hollow-3"
	s.create(s.on(busy, dead, well), patiently(8*time.Second))
	s.converged(each([]string{busy, dead, well}, once))
	s.does(busy, "hold", "module", s.kernelModule)
	s.dies(dead)

	s.must(shared.Admin.Delete(s.Context(), s.module()))

	s.eventually("the condition names both", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonInUse, "within 8s", busy, "NodeNotReady on "+dead)
	})
	s.eventually("the Module is gone and an event names both", func(ctx context.Context) error {
		return errors.Join(s.away(ctx), s.told(ctx, v1beta1.ReasonAbandoned, "2 nodes", "InUse on "+busy, "NodeNotReady on "+dead))
	})
	s.must(kernels(s.Context(), s.kernelModule, map[string]tally{busy: once, dead: once, well: {Loads: 1, Unloads: 1}}))
	s.does(busy, "unhold", "module", s.kernelModule)
	s.eventually("the busy node unloads", func(ctx context.Context) error {
		return kernels(ctx, s.kernelModule, map[string]tally{busy: {Loads: 1, Unloads: 1}, dead: once, well: {Loads: 1, Unloads: 1}})
	})
	s.does(dead, "return") // a new boot: it does not load what it is to unload
	s.eventually("nothing speaks of the Module any more", func(ctx context.Context) error { return gone(ctx, s.key) })
	s.journalIs(map[string]tally{busy: {Loads: 1, Unloads: 1}, dead: {Loads: 1}, well: {Loads: 1, Unloads: 1}})
}

// TestLifecycleNamesakeTakesOver: what was left for a dead node is the new Module's.
func TestLifecycleNamesakeTakesOver(t *testing.T) {
	s := given(t, "namesake")
	const dead, well = "hollow-4", "hollow-5"
	s.create(s.on(dead, well))
	s.converged(each([]string{dead, well}, once))
	s.dies(dead)
	s.must(shared.Admin.Delete(s.Context(), s.module()))
	s.eventually("the Module does not wait for the dead node", s.away)

	s.create(s.on(dead, well))
	s.does(dead, "return")

	s.converged(map[string]tally{dead: {Live: true, Loads: 2}, well: {Live: true, Loads: 2, Unloads: 1}})
}

// TestLifecycleNamespaceIsGuarded, until the last Module is really gone.
func TestLifecycleNamespaceIsGuarded(t *testing.T) {
	s := given(t, "guard")
	const busy = "hollow-0"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace}}
	// The API server learns of Modules by a watch of its own, which another scenario may have ended
	// by taking the definition away: that a delete would be refused is awaited, without deleting.
	refused := func(when string) {
		t.Helper()
		s.eventually("the namespace's delete would be refused "+when, func(ctx context.Context) error {
			if err := shared.Admin.Delete(ctx, namespace.DeepCopy(), client.DryRunAll); !apierrors.IsForbidden(err) {
				return fmt.Errorf("it would be answered by %v", err) //nolint:errorlint // nil, as a rule
			}
			return nil
		})
		if err := shared.Admin.Delete(t.Context(), namespace.DeepCopy()); !apierrors.IsForbidden(err) {
			t.Fatalf("the namespace's delete %s is answered by %v", when, err)
		}
	}
	s.create(s.on(busy))
	refused("right after the Module was made")
	s.converged(each([]string{busy}, once))
	s.does(busy, "hold", "module", s.kernelModule)
	s.must(shared.Admin.Delete(s.Context(), s.module()))
	s.eventually("the node is busy", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonInUse, busy)
	})
	refused("while the Module is unloaded")
	s.does(busy, "unhold", "module", s.kernelModule)
	s.eventually("the Module is gone", func(ctx context.Context) error { return gone(ctx, s.key) })
	s.eventually("the namespace may go", func(ctx context.Context) error { return shared.Admin.Delete(ctx, namespace.DeepCopy()) })
	s.journalIs(each([]string{busy}, tally{Loads: 1, Unloads: 1}))
}

// peer is KMM's operator as the cluster shows it: a pod that may order kernel modules, and its
// Lease, which is returned.
func (s *scenario) peer() client.Object {
	s.Helper()
	const account = "kmm-operator-controller"
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "kmm.sigs.x-k8s.io"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("kmm-operator-controller-0_1"), LeaseDurationSeconds: ptr.To[int32](3600),
			RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: account + "-0"},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "manager", Image: "example.com/kmm:1"}}},
	}
	pod.Spec.NodeSelector = map[string]string{"e2e.drover.dev/nowhere": ""}
	rights := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "drover-operator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.key.Namespace, Name: account}},
	}
	s.Cleanup(func() {
		for _, o := range []client.Object{rights, pod, lease} {
			if err := client.IgnoreNotFound(shared.Admin.Delete(context.Background(), o)); err != nil {
				s.Error(err)
			}
		}
	})
	for _, o := range []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: account}}, rights,
		pod, lease} {
		s.must(shared.Admin.Create(s.Context(), o))
	}
	return lease
}

// TestLifecycleNothingIsTouchedBesideAPeer: while KMM's operator holds its Lease, Drover says so
// and does nothing else.
func TestLifecycleNothingIsTouchedBesideAPeer(t *testing.T) {
	s := given(t, "peer")
	s.killOperator()
	lease := s.peer()
	s.create(s.on("hollow-0"))
	s.startOperator()

	s.eventually("the Module says why nothing happens", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonPeerActive, s.key.Namespace)
	})
	s.quiet() // events come a moment after their condition
	s.stillQuiet("a change of the Module", func() {
		s.change(func(m *v1beta1.Module) { m.Annotations = map[string]string{"e2e.drover.dev/touched": "yes"} })
	})
	s.journalIs(map[string]tally{})

	s.killOperator()
	s.must(shared.Admin.Delete(s.Context(), lease))
	s.startOperator()
	s.converged(each([]string{"hollow-0"}, once))
}

// TestLifecycleOneBadModuleStopsNoOther: one has no image and cannot leave, and its neighbour
// loads, changes and leaves.
func TestLifecycleOneBadModuleStopsNoOther(t *testing.T) {
	s := given(t, "bad")
	nodes := []string{"hollow-2", "hollow-3"}
	selected := s.on(nodes...)
	other := s.second("good", "e2e_bad_good")
	s.create(selected)
	s.converged(each(nodes, once))
	for _, node := range nodes {
		s.does(node, "hold", "module", s.kernelModule)
	}
	s.images("good")
	s.change(func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "registry.example.com/nowhere:1"
	})
	s.eventually("the bad one has no image", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonImageNotFound)
	})
	other.create(selected)
	s.eventually("the other is ready", func(ctx context.Context) error {
		return errors.Join(other.ready(ctx), other.labelled(ctx, nodes), kernels(ctx, other.kernelModule, each(nodes, once)))
	})

	s.must(shared.Admin.Delete(s.Context(), s.module()))
	s.eventually("the bad one cannot leave", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonInUse)
	})
	s.must(shared.Admin.Delete(s.Context(), other.module()))
	s.eventually("the other leaves", func(ctx context.Context) error {
		return errors.Join(other.away(ctx), kernels(ctx, other.kernelModule, each(nodes, tally{Loads: 1, Unloads: 1})))
	})
	s.journalIs(each(nodes, once))
	for _, node := range nodes {
		s.does(node, "unhold", "module", s.kernelModule)
	}
}
