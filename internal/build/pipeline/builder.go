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

// Part is what a builder adds to the pod of a Job.
type Part struct {
	// Containers that leave an OCI layout, in order.
	Containers []corev1.Container
	// Volumes that they mount, besides those of all Jobs.
	Volumes []corev1.Volume
	// Root: the containers run as root, though without power over the node.
	Root bool
}

// Builder is one way to build an image.
type Builder interface {
	// Render gives the builder's part of a Job's pod.
	Render(image *v1alpha1.ModuleImage, o *Options) Part
	// Observe picks the lines that say why from the end of a failed container's log.
	Observe(log string) string
}

// BuilderOf chooses the builder of an image, nil where nothing is built.
func BuilderOf(spec *v1alpha1.ModuleImageSpec) Builder {
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

// environment holds the arguments of a build.
func environment(b *v1alpha1.ImageBuild) []corev1.EnvVar {
	env := make([]corev1.EnvVar, 0, len(b.Args))
	for _, arg := range b.Args {
		env = append(env, corev1.EnvVar{Name: arg.Name, Value: arg.Value})
	}
	return env
}

func mount(volume, dir string, readOnly bool) corev1.VolumeMount {
	return corev1.VolumeMount{Name: volume, MountPath: dir, ReadOnly: readOnly}
}

func secretDir(name string) string { return path.Join("/run/secrets", name) }
