// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/testkit/env"
)

// carrier is the Module's only one, which must be of a mode.
func (w *world) carrier(m *v1beta1.Module, mode delivery.Mode) *corev1.Pod {
	w.Helper()
	pods := w.carriers(m)
	if len(pods) != 1 || delivery.ModeOf(&pods[0]) != mode {
		w.Fatalf("%d carriers, want one of mode %s: %+v", len(pods), mode, pods)
	}
	return &pods[0]
}

// cannotStart is a kubelet's answer to a carrier.
func (w *world) cannotStart(pod *corev1.Pod, reason string) {
	w.Helper()
	state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "mount of the volume failed"}}
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: state}}
	w.must(w.admin.Status().Update(w.Context(), pod))
}

// reboot gives the node another boot.
func (w *world) reboot(node *corev1.Node, boot string) {
	w.Helper()
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(node), node))
	node.Status.NodeInfo.BootID = boot
	w.must(w.admin.Status().Update(w.Context(), node))
}

// TestANodeThatMountsNoImages gets them by init containers, for all Modules and after a restart of
// the operator too, until it boots again.
func TestANodeThatMountsNoImages(t *testing.T) {
	env.Get(t).NeedsImageVolumes(t)
	for _, reason := range []string{"CreateContainerError", "CreateContainerConfigError", "RunContainerError"} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.node("a"), w.module("nic")
			w.pass(m)
			w.cannotStart(w.carrier(m, delivery.ModeImageVolume), reason)

			w.pass(m)
			w.reap()
			w.use(w.operator) // nothing is remembered but what the API holds
			w.pass(m)

			pod := w.carrier(m, delivery.ModeInitContainer)
			if got := w.ordered(node, m).Delivery.CarrierUID; got != pod.UID {
				t.Errorf("the order names carrier %q, want %q", got, pod.UID)
			}
			w.quiet(m)
			w.agent(node, loaded(w.ordered(node, m)))
			w.pass(m)
			w.reap()
			w.quiet(m)

			other := w.module("fs")
			w.pass(other)
			w.carrier(other, delivery.ModeInitContainer)

			w.reboot(node, "boot-2")
			third := w.module("gpu")
			w.pass(third)
			w.carrier(third, delivery.ModeImageVolume)
		})
	}
}

// TestNeitherWayStarts: when the second way cannot start either, it rests as any failure does, and
// the first is tried again.
func TestNeitherWayStarts(t *testing.T) {
	env.Get(t).NeedsImageVolumes(t)
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.pass(m)
	w.cannotStart(w.carrier(m, delivery.ModeImageVolume), "CreateContainerError")
	w.pass(m)
	w.reap()
	w.pass(m)
	w.cannotStart(w.carrier(m, delivery.ModeInitContainer), "RunContainerError")

	w.pass(m)
	w.reap()
	w.pass(m)

	if pods := w.carriers(m); len(pods) != 0 {
		t.Errorf("%d carriers while the failure rests", len(pods))
	}
	if p := w.problems(m)[node.Name]; p.Reason != v1beta1.ReasonDeliveryRefused {
		t.Errorf("problem %+v", p)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.pass(m)
	w.carrier(m, delivery.ModeImageVolume)
}

// TestAnInitContainerServesEverywhere: one at work is left alone by an operator that would choose
// an image volume now.
func TestAnInitContainerServesEverywhere(t *testing.T) {
	env.Get(t).NeedsImageVolumes(t)
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.2"
	w.must(w.admin.Status().Update(w.Context(), node))
	w.pass(m)
	pod := w.carrier(m, delivery.ModeInitContainer)
	node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.4"
	w.must(w.admin.Status().Update(w.Context(), node))

	w.quiet(m)

	if now := w.carrier(m, delivery.ModeInitContainer); now.UID != pod.UID {
		t.Error("the carrier was replaced")
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "export",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
	pod.ResourceVersion = ""
	w.must(w.admin.Status().Patch(context.WithoutCancel(w.Context()), pod,
		client.MergeFrom(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})))
	w.pass(m)
	w.reap()
	w.pass(m)
	w.carrier(m, delivery.ModeImageVolume)
}
