// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// WantedByModule is a Module's entry in spec.wantedBy.
func WantedByModule(name string) string { return "Module/" + name }

// Want adds who wants an image, and when a retry was asked for (zero: never).
func Want(spec *v1alpha1.ModuleImageSpec, by string, retry time.Time) {
	spec.WantedBy = []string{by}
	if !retry.IsZero() {
		spec.Retry = &metav1.Time{Time: retry.UTC().Truncate(time.Second)}
	}
}

// find returns the image that a Module wants for what it declares, or nil while there is none.
func find(images []v1alpha1.ModuleImage, declared *v1alpha1.ModuleImageSpec) *v1alpha1.ModuleImage {
	for i := range images {
		if s := &images[i].Spec; s.Declaration == declared.Declaration && slices.Contains(s.WantedBy, WantedByModule(declared.Module)) {
			return &images[i]
		}
	}
	return nil
}

// Answer is the state of an image for those who wait for it.
type Answer struct {
	// Hash of its inputs; "" for a prebuilt image, and while there is no ModuleImage.
	Hash string
	// Reference to deliver, with its digest; "" for a prebuilt image.
	Reference string
	// Reason and Message say why the image is not available; empty: it is.
	Reason, Message string
	// Unknown: the image has no ModuleImage yet. GivenUp: it is not tried any more.
	Unknown, GivenUp bool
}

// Ask returns the state of the image that a Module declares.
func Ask(images []v1alpha1.ModuleImage, declared *v1alpha1.ModuleImageSpec) Answer {
	image := find(images, declared)
	if image == nil {
		return Answer{Unknown: true, Reason: v1beta1.ReasonBuilding, Message: "image " + declared.Image + " is about to be made"}
	}
	a := Answer{}
	if !image.Status.Prebuilt {
		a.Hash, a.Reference = image.Spec.Hash, image.Status.Image
	}
	switch c := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionAvailable); {
	case c == nil:
		a.Reason, a.Message = v1beta1.ReasonBuilding, "image "+declared.Image+" is being made"
	case c.Status != "True" || image.Status.Image == "":
		a.Reason, a.Message = c.Reason, c.Message
		a.GivenUp = meta.IsStatusConditionTrue(image.Status.Conditions, v1alpha1.ConditionStalled)
	}
	return a
}

// Makes reports whether a Module asks for builds or signatures.
func Makes(m *v1beta1.Module) bool {
	if m.Spec.ModuleLoader == nil {
		return false
	}
	container := &m.Spec.ModuleLoader.Container
	return container.Build != nil || container.Sign != nil ||
		slices.ContainsFunc(container.KernelMappings, func(k v1beta1.KernelMapping) bool { return k.Build != nil || k.Sign != nil })
}

// Sources are the ConfigMaps that a Module's builds name.
func Sources(m *v1beta1.Module) []string {
	if m.Spec.ModuleLoader == nil {
		return nil
	}
	container := &m.Spec.ModuleLoader.Container
	builds := []*v1beta1.Build{container.Build}
	for i := range container.KernelMappings {
		builds = append(builds, container.KernelMappings[i].Build)
	}
	var all []corev1.LocalObjectReference
	for _, b := range builds {
		if b != nil && b.DockerfileConfigMap != nil {
			all = append(all, *b.DockerfileConfigMap)
		}
		if b != nil && b.Native != nil && b.Native.SourceConfigMap != nil {
			all = append(all, *b.Native.SourceConfigMap)
		}
	}
	return names(all)
}

// ByDigest is an image's reference with this digest. The tag stays, for people.
func ByDigest(image, digest string) string {
	name, _, _ := strings.Cut(image, "@")
	return name + "@" + digest
}

// Names reports whether a message about a pull is about an image: by its reference, or by any
// digest of its repository, since messages drop the tag of a reference that has both.
func Names(message, image string) bool {
	name, _, _ := strings.Cut(image, "@")
	repository := name
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		repository = name[:colon]
	}
	return strings.Contains(message, image) || strings.Contains(message, repository+"@")
}
