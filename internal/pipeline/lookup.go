// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// WantedByModule is how a Module says, in spec.wantedBy, that it wants an image.
func WantedByModule(name string) string { return "Module/" + name }

// Find returns the image that a Module wants for what it declares, or nil while there is none.
func Find(images []v1alpha1.ModuleImage, declared *v1alpha1.ModuleImageSpec) *v1alpha1.ModuleImage {
	for i := range images {
		if s := &images[i].Spec; s.Declaration == declared.Declaration && slices.Contains(s.WantedBy, WantedByModule(declared.Module)) {
			return &images[i]
		}
	}
	return nil
}

// Answer is how an image stands for those who wait for it.
type Answer struct {
	// Hash of its inputs; "" for an image that is none of ours.
	Hash string
	// Reference to deliver.
	Reference string
	// Reason and Message say why it is not there; empty: it is.
	Reason, Message string
}

// Ask tells how the image stands that a Module declares.
func Ask(images []v1alpha1.ModuleImage, declared *v1alpha1.ModuleImageSpec) Answer {
	image := Find(images, declared)
	if image == nil {
		return Answer{Reason: v1beta1.ReasonBuilding, Message: "image " + declared.Image + " is to be made"}
	}
	c := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionAvailable)
	switch {
	case c == nil:
		return Answer{Reason: v1beta1.ReasonBuilding, Message: "image " + declared.Image + " is being made"}
	case c.Status != "True" || image.Status.Image == "":
		return Answer{Reason: c.Reason, Message: c.Message}
	case image.Status.Prebuilt:
		return Answer{Reference: declared.Image}
	}
	return Answer{Hash: image.Spec.Hash, Reference: image.Status.Image}
}

// ByDigest is an image's reference with a digest in place of any that it has. The tag stays, for people.
func ByDigest(image, digest string) string {
	name, _, _ := strings.Cut(image, "@")
	return name + "@" + digest
}
