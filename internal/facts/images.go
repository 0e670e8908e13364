// SPDX-License-Identifier: Apache-2.0

package facts

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/status"
)

// want is what is asked of nodes with one kernel and architecture.
type want struct {
	ask      *status.Ask
	unmapped *reasons.Problem
	image    *status.Image
}

// Ask is what is asked of a node, or why nothing can be. For an image that is made in the cluster, what it is made from is part of the delivery's
// identity, as for the controller that gives orders. The result is shared.
func (s *Scene) Ask(node *corev1.Node) (*status.Ask, *reasons.Problem) {
	w := s.want(node)
	return w.ask, w.unmapped
}

func (s *Scene) want(node *corev1.Node) want {
	info := &node.Status.NodeInfo
	ask, unmapped := s.Asks.On(info.KernelVersion, info.Architecture)
	if ask == nil || !s.Makes || !s.Asks.declared.Makes() {
		return want{ask: ask, unmapped: unmapped}
	}
	key := info.KernelVersion + "/" + info.Architecture
	if known, ok := s.wants[key]; ok {
		return known
	}
	if s.wants == nil {
		s.wants = map[string]want{}
	}
	s.wants[key] = s.made(ask, info)
	return s.wants[key]
}

func (s *Scene) made(ask *status.Ask, node *corev1.NodeSystemInfo) want {
	w := want{ask: ask}
	declared, err := s.Asks.declared.On(&ask.Config, ask.Mapping, node)
	if err == nil && declared == nil {
		return w
	}
	w.image = &status.Image{Reference: ask.Config.ContainerImage, Kernel: node.KernelVersion, Architecture: node.Architecture}
	if err != nil {
		w.image.Problem = &reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing, Message: err.Error()}
		return w
	}
	answer := pipeline.Ask(s.Images, declared)
	switch {
	case answer.Unknown && s.ImageProblem != nil:
		w.image.Problem = s.ImageProblem
	case answer.Reason != "":
		w.image.Problem, w.image.GivenUp = &reasons.Problem{Reason: answer.Reason, Message: answer.Message}, answer.GivenUp
	}
	if answer.Hash == "" {
		return w
	}
	id, err := delivery.ID(s.Module, &ask.Config, answer.Hash)
	if err != nil {
		return want{unmapped: &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: err.Error()}}
	}
	with := *ask
	with.Delivery = id
	w.ask = &with
	return w
}

// deliveryProblem is what keeps the image from a node: an image that is not made yet comes before all that could happen to it later.
func (s *Scene) deliveryProblem(node string, entry status.Entry, w *want) *reasons.Problem {
	if w.image != nil && w.image.Problem != nil && !entry.Holds(w.ask.Delivery) {
		return w.image.Problem
	}
	return s.Deliveries(node)
}
