// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/kernel"
)

// references are what an image's Jobs push to; none for one that is only examined.
func references(spec *v1alpha1.ModuleImageSpec) []string {
	if !made(spec) || spec.Examine != nil {
		return nil
	}
	all := []string{spec.Image}
	if spec.Build != nil && spec.Sign != nil && spec.Sign.UnsignedImage != "" {
		all = append(all, spec.Sign.UnsignedImage)
	}
	return all
}

// Share is the reference that two images are pushed to; "" is none.
func Share(a, b *v1alpha1.ModuleImageSpec) string {
	others := references(b)
	for _, reference := range references(a) {
		if slices.Contains(others, reference) {
			return reference
		}
	}
	return ""
}

// Rival is the image that has a reference to which this one would be pushed, too: they would overwrite each other in turn. Of all that are wanted
// the oldest has it. nil: there is none, or it is this one.
//
// all are those of the namespace: in another one, others could name an image to keep it from being made, and have no credentials for it.
func Rival(image *v1alpha1.ModuleImage, all []v1alpha1.ModuleImage) *v1alpha1.ModuleImage {
	first := image
	for i := range all {
		other := &all[i]
		if len(other.Spec.WantedBy) > 0 && other.DeletionTimestamp == nil && Share(&image.Spec, &other.Spec) != "" && older(other, first) {
			first = other
		}
	}
	if first == image {
		return nil
	}
	return first
}

func older(a, b *v1alpha1.ModuleImage) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) < 0
}

// Clash says what two images share, and how to tell them apart.
func Clash(image, rival *v1alpha1.ModuleImage) string {
	mine, other := &image.Spec, &rival.Spec
	advice := "it is made when nobody wants the other"
	switch version := kernel.Parse(mine.KernelVersion).TagSafe().Full; {
	case mine.Module != other.Module:
		advice = "give each Module a name of its own (${MOD_NAME})"
	case mine.KernelVersion != other.KernelVersion && version == kernel.Parse(other.KernelVersion).TagSafe().Full:
		advice = fmt.Sprintf("%s and %s are the same in a tag: give their nodes a Module each, with another name", mine.KernelVersion, other.KernelVersion)
	case mine.KernelVersion != other.KernelVersion:
		advice = "put ${KERNEL_FULL_VERSION} into the name"
	case mine.Architecture != other.Architecture:
		advice = "put ${NODE_ARCH} into the name"
	}
	return fmt.Sprintf("%s, for kernel %s on %s, is also the name of what ModuleImage %s makes (Module %s, kernel %s on %s), which is older: %s",
		Share(mine, other), mine.KernelVersion, mine.Architecture, rival.Name, other.Module, other.KernelVersion, other.Architecture, advice)
}
