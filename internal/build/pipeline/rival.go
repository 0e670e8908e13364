// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// references are what an image's Jobs push to; none if it is only examined.
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

// Share is a reference that two images are both pushed to; "" is none.
func Share(a, b *v1alpha1.ModuleImageSpec) string {
	others := references(b)
	for _, reference := range references(a) {
		if slices.Contains(others, reference) {
			return reference
		}
	}
	return ""
}

// Rival is the oldest wanted image that is pushed to a reference of this one, too: they would
// overwrite each other in turn. nil: there is none, or it is this one.
//
// all are those of one namespace: images of others cannot block it.
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

// Clash says which reference two images share, and how to tell them apart.
func Clash(image, rival *v1alpha1.ModuleImage) string {
	mine, other := &image.Spec, &rival.Spec
	advice := "it is made when nobody wants the other one"
	switch version := kernel.Parse(mine.KernelVersion).TagSafe().Full; {
	case mine.Module != other.Module:
		advice = "add ${MOD_NAME} to the image name"
	case mine.KernelVersion != other.KernelVersion && version == kernel.Parse(other.KernelVersion).TagSafe().Full:
		advice = fmt.Sprintf("%s and %s are the same in a tag: use a Module for each, with another image name", mine.KernelVersion,
			other.KernelVersion)
	case mine.KernelVersion != other.KernelVersion:
		advice = "add ${KERNEL_FULL_VERSION} to the image name"
	case mine.Architecture != other.Architecture:
		advice = "add ${NODE_ARCH} to the image name"
	}
	return fmt.Sprintf("image %s, for kernel %s on %s, has the same name as that of the older ModuleImage %s (Module %s, kernel %s on %s): %s",
		Share(mine, other), mine.KernelVersion, mine.Architecture, rival.Name, other.Module, other.KernelVersion, other.Architecture, advice)
}
