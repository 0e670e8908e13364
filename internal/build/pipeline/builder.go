// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/shared/words"
)

// builder is one way to build an image.
type builder interface {
	// render adds to a Job's pod the containers that leave an OCI layout, and volumes of their own.
	render(pod *corev1.PodSpec, image *v1alpha1.ModuleImage, o *Options)
	// explain picks the lines that say why from the end of a failed container's log.
	explain(log string) string
}

// builderOf chooses the builder of an image, nil where nothing is built.
func builderOf(spec *v1alpha1.ModuleImageSpec) builder {
	switch {
	case spec.Build == nil:
		return nil
	case spec.Build.Native != nil:
		return native{}
	}
	return buildah{}
}

// maxExcerpt bounds what a condition quotes of a log, in bytes.
const maxExcerpt = 1024

// excerpt is the lines of a log that say why: those that hold one of the signs, and the last one.
func excerpt(log string, signs ...string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	var kept []string
	for i, line := range lines {
		line = strings.TrimSpace(line)
		lower := strings.ToLower(line)
		if line != "" && (i == len(lines)-1 || slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(lower, sign) })) {
			kept = append(kept, line)
		}
	}
	// The first error causes the others.
	return words.Cut(strings.Join(kept, "\n"), maxExcerpt)
}

func mount(volume, dir string, readOnly bool) corev1.VolumeMount {
	return corev1.VolumeMount{Name: volume, MountPath: dir, ReadOnly: readOnly}
}

func secretDir(name string) string { return path.Join("/run/secrets", name) }
