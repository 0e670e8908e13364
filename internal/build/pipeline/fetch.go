// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/shared/delivery"
)

// ReadsImages reports whether a step of the Job reads the content of another image.
func ReadsImages(spec *v1alpha1.ModuleImageSpec) bool {
	return spec.Build != nil && spec.Build.Native != nil && (spec.Build.Native.HeadersImage != "" || spec.Build.Native.SourceImage != "")
}

// MountsImages reports whether a Job's pod may have image volumes: only if every node that it may
// run on can mount them, because the scheduler does not check. Without such a node it may not: an
// API server without image volumes silently drops them.
func MountsImages(spec *v1alpha1.ModuleImageSpec, mode delivery.Mode, nodes []corev1.Node) bool {
	if !ReadsImages(spec) {
		return false
	}
	if mode != delivery.ModeAuto && mode != "" {
		return mode == delivery.ModeImageVolume
	}
	selector, found := labels.SelectorFromSet(nodeSelector(spec)), false
	for i := range nodes {
		if !selector.Matches(labels.Set(nodes[i].Labels)) {
			continue
		}
		if mode.For(&nodes[i].Status.NodeInfo) != delivery.ModeImageVolume {
			return false
		}
		found = true
	}
	return found
}

// nodeSelector says which nodes a Job's pod may run on.
func nodeSelector(spec *v1alpha1.ModuleImageSpec) map[string]string {
	all := map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: spec.Architecture}
	if spec.Build != nil {
		maps.Copy(all, spec.Build.Selector)
	}
	return all
}

// content is a volume with an image's content: the image itself, or a folder that a step fills.
func content(spec *v1alpha1.ModuleImageSpec, o *Options, volume, image, dir string) (corev1.Volume, []corev1.Container) {
	if o.MountImages {
		return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{
			Reference: image, PullPolicy: corev1.PullIfNotPresent,
		}}}, nil
	}
	args, mounts := registry(spec, o, image, spec.Build.BaseImageRegistryTLS)
	fetch := step(o, StepFetch, append(args, "--arch", spec.Architecture, "--to", dir), append(mounts, mount(volume, dir, false))...)
	fetch.Name = StepFetch + "-" + volume
	return corev1.Volume{Name: volume, VolumeSource: emptyDir()}, []corev1.Container{fetch}
}
