// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
)

// TestABakedNodeIsAskedFirst: it gets the order alone, and a carrier only after its agent has
// answered that it lacks the content.
func TestABakedNodeIsAskedFirst(t *testing.T) {
	w := newWorld(t)
	holds, lacks, m := w.node("holds"), w.node("lacks"), w.module("nic")
	id := desired.New(m).On(kernelVersion, "").State.Delivery
	for _, node := range []*corev1.Node{holds, lacks} {
		patch := client.MergeFrom(node.DeepCopy())
		node.Labels[v1beta1.BakedLabel(id)] = ""
		w.must(w.admin.Patch(t.Context(), node, patch))
	}
	mark := w.env.Mark(t)
	w.pass(m)
	if made := w.carriers(m); len(made) != 0 {
		t.Fatalf("%d carriers were made before anybody was asked", len(made))
	}
	w.quiet(m)
	w.agent(holds, loaded(w.ordered(holds, m)))
	w.pass(m)
	for write, n := range w.env.Writes(t, mark) {
		if write.Resource == "pods" {
			t.Errorf("%d times: %+v", n, write)
		}
	}
	w.agent(lacks, v1beta1.NodeModulesConfigStatus{Attempts: []v1beta1.NodeModuleAttempt{{Namespace: m.Namespace, Name: m.Name,
		State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonAwaitingDelivery, LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}}})
	w.pass(m)
	made := w.carriers(m)
	if len(made) != 1 || made[0].Spec.NodeName != lacks.Name || w.ordered(lacks, m).Delivery.CarrierUID != made[0].UID {
		t.Errorf("carriers %v, want one for the node that lacks it, named in its order", made)
	}
	w.quiet(m)
}
