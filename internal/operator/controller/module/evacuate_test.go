// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// app runs a pod on a node; owner is the kind of its controller or empty.
func (w *world) app(node *corev1.Node, name, owner string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name,
			Labels: map[string]string{"app": strings.TrimRight(name[:min(len(name), 63)], "-")}},
		Spec: corev1.PodSpec{
			NodeName: node.Name, AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Containers: []corev1.Container{{Name: "main", Image: "example.com/app:1"}},
		},
	}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "owner", UID: "owner"}, appsv1.SchemeGroupVersion.WithKind(owner)),
		}
	}
	w.must(w.admin.Create(w.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.must(w.admin.Status().Update(w.Context(), pod))
	return pod
}

// budget lets so many of an app's pods be evicted.
func (w *world) budget(app string, allowed int32) {
	w.Helper()
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "budget-of-" + app}}
	err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(pdb), pdb)
	if apierrors.IsNotFound(err) {
		pdb.Spec = policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
		err = w.admin.Create(w.Context(), pdb)
	}
	w.must(err)
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: pdb.Generation, DisruptionsAllowed: allowed,
		CurrentHealthy: 1 + allowed, DesiredHealthy: 1, ExpectedPods: 1 + allowed}
	w.must(w.admin.Status().Update(w.Context(), pdb))
}

func (w *world) gone(pod *corev1.Pod) bool {
	w.Helper()
	err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
	w.must(client.IgnoreNotFound(err))
	return err != nil
}

// cordoned is whether a node is, and for whom.
func (w *world) cordoned(node *corev1.Node) (bool, string) {
	w.Helper()
	now := &corev1.Node{}
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(node), now))
	return now.Spec.Unschedulable, now.Annotations[v1beta1.CordonedAnnotation]
}

// restarted is a pass of an operator that has just been started.
func (w *world) restarted(m *v1beta1.Module) time.Duration {
	w.Helper()
	w.use(w.operator)
	return w.pass(m).RequeueAfter
}

// upgrade brings a Module with a drain policy to a node, changes its image, and has that delivered
// ahead.
func (w *world) upgrade(policy v1beta1.DrainPolicy) (*corev1.Node, *v1beta1.Module) {
	w.Helper()
	node, m := w.node("a"), w.module("nic")
	w.change(m, func(m *v1beta1.Module) {
		m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1)), Drain: policy}
	})
	w.pass(m)
	w.agent(node, w.live(w.ordered(node, m), time.Hour))
	w.pass(m)
	w.reap()
	w.change(m, to("registry.example/nic:2"))
	w.pass(m)
	w.agent(node, w.live(w.ordered(node, m), time.Hour))
	return node, m
}

// TestNodeIsDrainedBeforeItsTurn: cordoned, emptied as budgets allow, changed, and given back, by
// an operator that is started anew at each step.
func TestNodeIsDrainedBeforeItsTurn(t *testing.T) {
	for name, byAdmin := range map[string]bool{"by us": false, "an administrator's cordon stays": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.upgrade(v1beta1.DrainNode)
			app, daemon, mark := w.app(node, "app", "ReplicaSet"), w.app(node, "daemon", "DaemonSet"), w.namespace+"/nic"
			w.budget("app", 0)
			if byAdmin {
				mark = ""
				w.must(w.admin.Patch(w.Context(), node, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`))))
			}
			waits := func(when, image string, gone bool) {
				t.Helper()
				if is, by := w.cordoned(node); !is || by != mark {
					t.Errorf("%s: cordoned %t for %q", when, is, by)
				}
				if got := w.ordered(node, m).Config.ContainerImage; got != image || w.gone(app) != gone || w.gone(daemon) {
					t.Errorf("%s: ordered %s, pods gone: %t, %t", when, got, w.gone(app), w.gone(daemon))
				}
			}
			before := w.ordered(node, m).Config.ContainerImage

			if after := w.restarted(m); after <= 0 || after > 5*time.Second {
				t.Errorf("the budget is asked again after %v", after)
			}
			waits("the budget does not allow it", before, false)
			if said := w.problems(m)[node.Name].Message; !strings.Contains(said, "/app ") || !strings.Contains(said, "budget-of-app") {
				t.Errorf("it says %q", said)
			}

			w.budget("app", 1)
			w.restarted(m)
			waits("the budget allows it", before, true)
			w.restarted(m)
			waits("the node is empty", "registry.example/nic:2", true)
			w.restarted(m)
			waits("the agent is at it", "registry.example/nic:2", true)

			w.agent(node, w.live(w.ordered(node, m), time.Minute))
			w.restarted(m)
			if is, by := w.cordoned(node); is != byAdmin || by != "" {
				t.Errorf("afterwards: cordoned %t for %q", is, by)
			}
			w.reap()
			w.pass(m)
			w.quiet(m)
		})
	}
}

// TestADrainSparesTheOperator: its own pod stays, and the node changes beside it; another pod of
// that name goes.
func TestADrainSparesTheOperator(t *testing.T) {
	for name, tc := range map[string]struct {
		pod, host string
		other     bool // the operator runs in another namespace
		spared    bool
	}{
		"itself":                         {pod: "drover-operator-1", host: "drover-operator-1", spared: true},
		"its name is cut":                {pod: strings.Repeat("o", 62) + "-xyz", host: strings.Repeat("o", 62), spared: true},
		"another replica":                {pod: "drover-operator-2", host: "drover-operator-1"},
		"a namesake, elsewhere":          {pod: "drover-operator-1", host: "drover-operator-1", other: true},
		"the operator runs in no pod":    {pod: "drover-operator-1", host: "laptop"},
		"the operator knows no host":     {pod: "drover-operator-1"},
		"its host's name begins like it": {pod: "drover-operator-1", host: "drover-operator"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			self := types.NamespacedName{Namespace: w.namespace, Name: tc.host}
			if tc.other {
				self.Namespace = "drover-system"
			}
			w.control = module.New(w.operator, w.operator, module.Options{AgentImage: env.AgentImage, DeliveryMode: delivery.ModeAuto,
				Clock: w.clock, Recorder: kube.NewRecorder(w.events), Gate: &w.gate, Self: self})
			node, m := w.upgrade(v1beta1.DrainNode)
			pod := w.app(node, tc.pod, "ReplicaSet")
			w.pass(m)
			w.pass(m)
			if w.gone(pod) == tc.spared {
				t.Errorf("evicted: %t", !tc.spared)
			}
			if got := w.ordered(node, m).Config.ContainerImage; got != "registry.example/nic:2" {
				t.Errorf("ordered: %s", got)
			}
		})
	}
}

// TestAnOrderToUnloadFollowsTheModulesUnloadPolicy as long as there is the Module.
func TestAnOrderToUnloadFollowsTheModulesUnloadPolicy(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.deselect(node, m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent || e.UnloadPolicy != "" {
		t.Fatalf("order %+v", e)
	}
	for _, policy := range []v1beta1.UnloadPolicy{v1beta1.UnloadOnReboot, v1beta1.UnloadWait, ""} {
		w.change(m, func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.UnloadPolicy = policy })
		w.pass(m)
		if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent || e.UnloadPolicy != policy {
			t.Errorf("the Module says %q, the order %s %q", policy, e.State, e.UnloadPolicy)
		}
		w.quiet(m)
	}
}
