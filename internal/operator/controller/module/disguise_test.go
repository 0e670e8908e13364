// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// disguise makes a pod that whoever may edit pods can make: a carrier by all its labels and
// annotations, and one that does not go when it is deleted.
func (w *world) disguise(like *corev1.Pod) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "innocent", Finalizers: []string{"example.com/stay"}},
		Spec:       corev1.PodSpec{NodeName: like.Spec.NodeName, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	w.must(w.admin.Create(w.Context(), pod))
	patch := client.MergeFrom(pod.DeepCopy())
	pod.Labels, pod.Annotations = like.Labels, like.Annotations
	w.must(w.admin.Patch(w.Context(), pod, patch))
	return pod
}

func TestAPodInDisguiseIsNoCarrier(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.pass(m)
	real := w.carriers(m)[0]
	// The node needs the delivery again.
	w.must(w.admin.Delete(t.Context(), &real))
	w.reap()
	w.must(w.admin.Delete(t.Context(), w.config(node)))
	pod := w.disguise(&real)
	w.pass(m)
	uid := w.ordered(node, m).Delivery.CarrierUID
	if uid == pod.UID || uid == "" {
		t.Errorf("the entry names carrier %q", uid)
	}
	for _, c := range w.carriers(m) {
		if c.Name != pod.Name && c.UID != uid {
			t.Errorf("carrier %s is not the one that the entry names", c.Name)
		}
	}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if pod.DeletionTimestamp != nil {
		t.Error("somebody's pod was deleted")
	}
	w.agent(node, v1beta1.NodeModulesConfigStatus{Artifacts: loaded(w.ordered(node, m)).Artifacts})
	w.pass(m)
	w.quiet(m)
	pod.Finalizers = nil
	w.must(w.admin.Update(t.Context(), pod))
}
