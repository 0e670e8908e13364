// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// change updates a Module.
func (w *world) change(m *v1beta1.Module, change func(*v1beta1.Module)) {
	w.Helper()
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(m), m))
	change(m)
	w.must(w.admin.Update(w.Context(), m))
}

func to(image string) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = image }
}

// live is the agent's status with the order fulfilled a time ago, and the next delivery held too.
func (w *world) live(e *v1beta1.NodeModuleSpec, ago time.Duration) v1beta1.NodeModulesConfigStatus {
	status := loaded(e)
	status.Modules[0].LastTransitionTime = metav1.NewTime(w.clock.Now().Add(-ago))
	status.Modules[0].Observed.Delivery = e.Delivery.ID
	if e.Next != nil {
		status.Artifacts = append(status.Artifacts, v1beta1.NodeArtifact{ID: e.Next.ID, Digest: "d2"})
	}
	return status
}

// TestNodesChangeInTurn: delivered ahead, one node first, for the soak time, then the next; nothing
// is written between. What the clocks of the nodes say does not matter.
func TestNodesChangeInTurn(t *testing.T) {
	for name, ago := range map[string]time.Duration{"right clocks": 0, "an hour behind": time.Hour, "an hour ahead": -time.Hour} {
		t.Run(name, func(t *testing.T) { changeInTurn(t, ago) })
	}
}

// changeInTurn with nodes that date what they do a time ago.
func changeInTurn(t *testing.T, ago time.Duration) {
	w := newWorld(t)
	nodes := []*corev1.Node{w.node("a"), w.node("b"), w.node("c")}
	m := w.module("nic")
	one := intstr.FromInt32(1)
	w.change(m, func(m *v1beta1.Module) {
		m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &one, Soak: &metav1.Duration{Duration: time.Minute}}
	})
	w.pass(m)
	for _, node := range nodes {
		w.agent(node, w.live(w.ordered(node, m), ago))
	}
	w.pass(m)
	w.reap()
	before := w.ordered(nodes[0], m).Config.ContainerImage
	image := func(node *corev1.Node) string { return w.ordered(node, m).Config.ContainerImage }

	w.change(m, to("registry.example/nic:2"))
	w.pass(m)
	if e := w.ordered(nodes[0], m); e.Next == nil || e.Next.CarrierUID == "" || e.Config.ContainerImage != before || len(w.carriers(m)) != 1 {
		t.Fatalf("not delivered ahead: %+v, %d carriers", e, len(w.carriers(m)))
	}
	w.quiet(m)
	w.agent(nodes[0], w.live(w.ordered(nodes[0], m), ago))
	w.pass(m)
	if e := w.ordered(nodes[0], m); e.Next != nil || image(nodes[0]) != "registry.example/nic:2" || image(nodes[1]) != before ||
		image(nodes[2]) != before {
		t.Fatalf("the first turn: %+v, then %s, %s", e, image(nodes[1]), image(nodes[2]))
	}
	w.reap()
	w.pass(m) // the carrier is gone
	w.quiet(m)

	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.agent(nodes[0], w.live(w.ordered(nodes[0], m), ago))
	waits := func(left time.Duration) {
		t.Helper()
		if after := w.pass(m).RequeueAfter; after != left {
			t.Errorf("the next pass is due after %v, want %v", after, left)
		}
		if image(nodes[1]) != before {
			t.Error("the second node did not wait for the soak time")
		}
	}
	waits(time.Minute)
	w.clock.SetTime(w.clock.Now().Add(50 * time.Second))
	waits(10 * time.Second)
	w.use(w.operator) // a restart begins the soak time anew
	waits(time.Minute)
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.pass(m)
	if e := w.ordered(nodes[1], m); e.Next == nil {
		t.Errorf("nothing is delivered to the second node: %+v", e)
	}
	w.agent(nodes[1], w.live(w.ordered(nodes[1], m), ago))
	w.pass(m)
	if image(nodes[1]) != "registry.example/nic:2" || image(nodes[2]) != before {
		t.Errorf("the second turn: %s, %s", image(nodes[1]), image(nodes[2]))
	}
}

// TestVersionLabelDecides, when there is one, about the order: as upstream.
func TestVersionLabelDecides(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	m := w.module("nic")
	w.must(w.admin.Delete(w.Context(), m))
	m.ObjectMeta = metav1.ObjectMeta{Namespace: m.Namespace, Name: "versioned"}
	m.Spec.ModuleLoader.Container.Version = "1"
	w.must(w.admin.Create(w.Context(), m))
	label := v1beta1.VersionWorkerLabel(m.Namespace, m.Name)
	set := func(value string) {
		patch := client.MergeFrom(node.DeepCopy())
		if node.Labels[label] = value; value == "" {
			delete(node.Labels, label)
		}
		w.must(w.admin.Patch(w.Context(), node, patch))
	}
	w.pass(m)
	if w.entry(node, m) != nil {
		t.Fatal("ordered without a label")
	}
	set("1")
	w.load(node, m)
	first := w.ordered(node, m)

	w.change(m, func(m *v1beta1.Module) { to("registry.example/nic:2")(m); m.Spec.ModuleLoader.Container.Version = "2" })
	w.quiet(m)
	set("2")
	w.pass(m)
	if e := w.ordered(node, m); e.Version != "2" || e.Config.ContainerImage == first.Config.ContainerImage || e.Delivery.CarrierUID == "" {
		t.Errorf("the label says 2, and the order is %+v", e)
	}
	set("")
	w.pass(m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent || e.Reason != "VersionLabelRemoved" {
		t.Errorf("the label is gone, and the order is %+v", e)
	}
}
