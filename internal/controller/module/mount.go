// SPDX-License-Identifier: Apache-2.0

package module

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
)

// software is what decides whether a node can mount images: its kubelet, its container runtime, and the boot that they run in,
// since settings are read at their start.
func software(node *corev1.Node) string {
	info := &node.Status.NodeInfo
	return strings.Join([]string{info.KubeletVersion, info.ContainerRuntimeVersion, info.BootID}, " ")
}

// mountless reports whether a carrier with an image volume could not run on the node as it is now, although its versions promise it.
// The NodeModulesConfig remembers, so that neither another Module nor another process tries again.
func (v *view) mountless() bool {
	return v.config != nil && v.node != nil && v.config.Annotations[v1beta1.NoImageVolumesAnnotation] == software(v.node)
}

// mode is the mode of the node's next carrier.
func (pl *planner) mode(v *view) delivery.Mode {
	if pl.auto() && v.mountless() {
		return delivery.ModeInitContainer
	}
	return pl.options.DeliveryMode.For(&v.node.Status.NodeInfo)
}

func (pl *planner) auto() bool {
	return pl.options.DeliveryMode == delivery.ModeAuto || pl.options.DeliveryMode == ""
}

// suits reports whether a carrier may go on as it is. One that was made before the operator's setting or the node's software changed is
// perhaps stuck for that very reason; but where the operator chooses, an init container serves everywhere.
func (pl *planner) suits(carrier *corev1.Pod, v *view) bool {
	mode := delivery.ModeOf(carrier)
	return mode == pl.mode(v) || pl.auto() && mode == delivery.ModeInitContainer && delivery.ProblemOf(carrier) == nil
}

// switches leads from a way of delivery that the node cannot go to the other, where the operator chooses. It reports whether it did.
// Which of the two is at fault no kubelet says, so that the second is not for good either: when it cannot start, it rests like any
// failure, and the first is tried again.
func (pl *planner) switches(s *step, a *aim, carrier *corev1.Pod) bool {
	v := s.view
	if !pl.auto() || !delivery.CannotStart(carrier) || pl.options.DeliveryMode.For(&v.node.Status.NodeInfo) != delivery.ModeImageVolume {
		return false
	}
	switch delivery.ModeOf(carrier) {
	case delivery.ModeImageVolume:
		s.mountless = true
	case delivery.ModeInitContainer:
		s.mountless, s.failed = false, delivery.ProblemOf(carrier)
	case delivery.ModeAuto:
	}
	s.discard = append(s.discard, carrier)
	s.writeUnlessRight(a.carriedBy(carrier.UID))
	if s.write == nil {
		s.write = v.entry.DeepCopy() // for the annotation's sake
	}
	return true
}
