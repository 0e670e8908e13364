// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// leaves orders an unload; the agent has not answered.
func (s *scene) leaves(t *testing.T, name string) {
	t.Helper()
	nmc := &v1beta1.NodeModulesConfig{}
	if err := s.admin.Get(t.Context(), client.ObjectKey{Name: name}, nmc); err != nil {
		t.Fatal(err)
	}
	nmc.Spec.Modules[0].State, nmc.Spec.Modules[0].Reason = v1beta1.NodeModuleAbsent, "Deleted"
	if err := s.admin.Update(t.Context(), nmc); err != nil {
		t.Fatal(err)
	}
}

// node changes a node; its status goes in a write of its own. The controller may write labels
// meanwhile.
func (s *scene) node(t *testing.T, name string, edit func(*corev1.Node)) {
	t.Helper()
	write := func(update func(context.Context, *corev1.Node) error) {
		t.Helper()
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n := &corev1.Node{}
			if err := s.admin.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
				return err
			}
			edit(n)
			return update(t.Context(), n)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	write(func(ctx context.Context, n *corev1.Node) error { return s.admin.Update(ctx, n) })
	write(func(ctx context.Context, n *corev1.Node) error { return s.admin.Status().Update(ctx, n) })
}

// TestModuleThatCannotLeaveSaysWhy: the finalizer waits for every order, also for those of nodes
// where nothing is live.
func TestModuleThatCannotLeaveSaysWhy(t *testing.T) {
	s := newScene(t, 4)
	const minutes = 3 // the clock is that far ahead of the API server's
	startAt(t, s.Env, func() time.Time { return time.Now().Add(minutes * time.Minute) })
	for _, name := range s.nodes {
		s.order(t, name)
		s.report(t, name, s.live("boot-1"))
	}
	s.change(t, func(m *v1beta1.Module) { m.Finalizers = []string{v1beta1.ModuleFinalizer} })
	t.Cleanup(func() {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := s.admin.Patch(context.Background(), s.module, patch); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	busy, paused, away, silent := s.nodes[0], s.nodes[1], s.nodes[2], s.nodes[3]
	s.node(t, paused, func(n *corev1.Node) { n.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} })
	s.node(t, away, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	if err := s.admin.Delete(t.Context(), s.module); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{busy, away, silent} {
		s.leaves(t, name)
	}
	status := s.live("boot-1")
	status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: s.namespace, Name: "nic", State: v1beta1.AttemptInUse,
		Reason: v1beta1.ReasonInUse, Message: "used by process 7"}}
	s.report(t, busy, status)
	// Its node has rebooted since: nothing is live there, and yet the order stands.
	s.boot(t, silent, "boot-2")

	s.awaitMessage(t, v1beta1.ConditionReady, fmt.Sprintf("The Module is being deleted and must still leave 4 nodes within 10m; InUse on "+
		"%s: used by process 7; "+
		"Paused on %s; NodeNotReady on %s; AgentMissing on %s: the agent has not answered the order to unload for more than 2 minutes", busy,
		paused, away, silent))
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInUse)
}

// TestModuleWithoutALoaderIsNotReadyWhileItUnloads: taking the moduleLoader away is an order to
// unload, too.
func TestModuleWithoutALoaderIsNotReadyWhileItUnloads(t *testing.T) {
	s := newScene(t, 1)
	start(t, s.Env)
	name := s.nodes[0]
	s.order(t, name)
	s.report(t, name, s.live("boot-1"))
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	s.change(t, func(m *v1beta1.Module) {
		m.Spec.ModuleLoader = nil
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
	})
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonUnloading)
	s.leaves(t, name)
	nmc := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.admin.Delete(t.Context(), nmc); err != nil {
		t.Fatal(err)
	}
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionTrue, v1beta1.ReasonNotRequested)
}
