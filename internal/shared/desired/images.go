// SPDX-License-Identifier: Apache-2.0

package desired

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// Image is one that is built or signed in the cluster, for one kernel and processor.
type Image struct {
	// Reference is what it is pushed to.
	Reference string
	// Kernel and Architecture that it is for.
	Kernel, Architecture string
	// Problem is why it is not there, or nil.
	Problem *reasons.Problem
	// GivenUp: nobody tries any more until somebody changes something.
	GivenUp bool
}

// Images are what is known of a Module's images.
type Images struct {
	// Makes: somebody builds and signs images in the cluster.
	Makes bool
	// Made are the Module's.
	Made []v1alpha1.ModuleImage
	// Problem is why one cannot even be begun, or nil.
	Problem *reasons.Problem
}

// Fleet tells what a Module wants of nodes as its images stand. It is not safe for concurrent use.
type Fleet struct {
	module *Module
	images Images
	known  map[platform]Answer
}

// With is the Module with its images as they stand.
func (d *Module) With(images Images) *Fleet {
	return &Fleet{module: d, images: images, known: map[platform]Answer{}}
}

// On is what is wanted of a node. The input of an image made in the cluster is part of its
// identity.
func (f *Fleet) On(node *corev1.NodeSystemInfo) Answer {
	a := f.module.On(node.KernelVersion, node.Architecture)
	if a.State == nil || !f.images.Makes || !f.module.declared.Makes() {
		return a
	}
	key := platform{node.KernelVersion, node.Architecture}
	known, ok := f.known[key]
	if !ok {
		known = f.made(a.State, node)
		kernel.Remember(f.known, key, known)
	}
	return known
}

func (f *Fleet) made(state *State, node *corev1.NodeSystemInfo) Answer {
	declared, err := f.module.declared.On(&state.Config, state.Mapping, node)
	if err == nil && declared == nil {
		return Answer{State: state}
	}
	a := Answer{State: state, Image: &Image{Reference: state.Config.ContainerImage, Kernel: node.KernelVersion,
		Architecture: node.Architecture}}
	if err != nil {
		a.Image.Problem = &reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing, Message: err.Error()}
		return a
	}
	found := pipeline.Ask(f.images.Made, declared)
	switch {
	case found.Unknown && f.images.Problem != nil:
		a.Image.Problem = f.images.Problem
	case found.Reason != "":
		a.Image.Problem, a.Image.GivenUp = &reasons.Problem{Reason: found.Reason, Message: found.Message}, found.GivenUp
	}
	if found.Hash == "" {
		return a
	}
	id, err := delivery.ID(f.module.module, &state.Config, found.Hash)
	if err != nil {
		return Answer{Err: err}
	}
	of := *state
	of.Delivery, of.Pull = id, found.Reference
	a.State = &of
	return a
}

// Missing is why the image that a node needs is not made; nil: it is, or the node holds it.
func (a *Answer) Missing(holds func(delivery string) bool) *reasons.Problem {
	if a.Image == nil || a.Image.Problem == nil || a.State == nil || holds(a.State.Delivery) {
		return nil
	}
	return a.Image.Problem
}
