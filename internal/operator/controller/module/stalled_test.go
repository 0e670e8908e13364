// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// oneByOne is a change with one place, on two nodes that hold the one before.
func (w *world) oneByOne(change func(*v1beta1.RolloutSpec)) (first, second *corev1.Node, m *v1beta1.Module) {
	w.Helper()
	first, second, m = w.node("a"), w.node("b"), w.module("nic")
	one := intstr.FromInt32(1)
	w.change(m, func(m *v1beta1.Module) {
		m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &one}
		change(m.Spec.Rollout)
	})
	w.pass(m)
	for _, node := range []*corev1.Node{first, second} {
		w.agent(node, w.live(w.ordered(node, m), 0))
	}
	w.pass(m)
	w.reap()
	w.change(m, to("registry.example/nic:2"))
	w.pass(m)
	return first, second, m
}

// TestANodeThatStartsNoPodsPassesItsTurn, whatever its clock says: the carrier stays, the node is
// told of, and the next node goes on.
func TestANodeThatStartsNoPodsPassesItsTurn(t *testing.T) {
	w := newWorld(t)
	first, second, m := w.oneByOne(func(*v1beta1.RolloutSpec) {})
	on := func(node *corev1.Node) int {
		n := 0
		for _, pod := range w.carriers(m) {
			if pod.Spec.NodeName == node.Name {
				n++
			}
		}
		return n
	}
	if on(first) != 1 || on(second) != 0 {
		t.Fatalf("carriers: %d and %d", on(first), on(second))
	}
	w.clock.SetTime(w.clock.Now().Add(2*time.Minute - time.Second))
	if after := w.pass(m).RequeueAfter; after != time.Second || on(second) != 0 {
		t.Errorf("the next pass is due after %v, and %d carriers on the second node", after, on(second))
	}
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.pass(m)
	if on(first) != 1 || on(second) != 1 {
		t.Errorf("carriers: %d and %d", on(first), on(second))
	}
	problem := w.problems(m)[first.Name]
	if problem.Reason != v1beta1.ReasonAwaitingDelivery || !strings.Contains(problem.Message, "kubectl describe pod -n "+w.namespace) {
		t.Errorf("told %+v", problem)
	}
	w.agent(second, w.live(w.ordered(second, m), 0))
	w.pass(m)
	if got := w.ordered(second, m).Config.ContainerImage; got != "registry.example/nic:2" {
		t.Errorf("the second node was ordered %s", got)
	}
}

// TestADrainThatTakesTooLongPassesItsTurn: the node is given back, told of, and tried again after
// the others.
func TestADrainThatTakesTooLongPassesItsTurn(t *testing.T) {
	w := newWorld(t)
	first, second, m := w.oneByOne(func(r *v1beta1.RolloutSpec) {
		r.Drain = v1beta1.DrainNode
		r.DrainOptions = &v1beta1.DrainOptions{WaitForCompletion: map[string]string{"app": "job"}, Timeout: &metav1.Duration{Duration: time.Hour}}
	})
	job := w.app(first, "job", "Job")
	image := func(node *corev1.Node) string { return w.ordered(node, m).Config.ContainerImage }
	before := image(first)
	told := func(reason string) {
		t.Helper()
		if problem := w.problems(m)[first.Name]; problem.Reason != reason || !strings.Contains(problem.Message, "/job ") {
			t.Errorf("told %+v", problem)
		}
	}
	w.agent(first, w.live(w.ordered(first, m), 0))
	w.pass(m)
	told(v1beta1.ReasonInUse)
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.pass(m)
	told(v1beta1.ReasonDrainBlocked)
	w.pass(m)
	if is, _ := w.cordoned(first); is || image(first) != before {
		t.Errorf("cordoned %t, ordered %s: it has passed its turn", is, image(first))
	}
	told(v1beta1.ReasonDrainBlocked)

	w.agent(second, w.live(w.ordered(second, m), 0))
	w.pass(m)
	w.pass(m)
	if image(second) != "registry.example/nic:2" || image(first) != before {
		t.Errorf("ordered %s and %s", image(first), image(second))
	}
	told(v1beta1.ReasonDrainBlocked)
	w.agent(second, w.live(w.ordered(second, m), 0))
	w.reap()
	w.pass(m)
	w.pass(m)
	if is, _ := w.cordoned(first); !is {
		t.Error("it does not get its next turn")
	}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	job.Status.Phase = corev1.PodSucceeded
	w.must(w.admin.Status().Update(t.Context(), job))
	w.pass(m)
	w.pass(m)
	if image(first) != "registry.example/nic:2" {
		t.Errorf("ordered %s after the job's end", image(first))
	}
}
