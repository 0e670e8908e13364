// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/shared/delivery"
)

// native compiles in a container of the user's toolchain that Pod Security "restricted" admits.
type native struct{}

const (
	headersDir = "/headers"
	sourceDir  = "/source"
	// sourceMapDir is where a ConfigMap's source is mounted for the step that copies it.
	sourceMapDir = "/drover/source"
	buildDir     = "/build"

	// nativeScript copies the source, which is mounted read-only, and compiles. $1 is an option of cp;
	// the rest is the command.
	nativeScript = `set -eu
if [ -e "$DROVER_STATE/done" ]; then exit 0; fi
cp "$1" "$DROVER_SOURCE"/* .
shift
umask 0000
exec "$@"`
)

// render implements builder. The compiler gets headers and source from images or a ConfigMap.
func (native) render(pod *corev1.PodSpec, image *v1alpha1.ModuleImage, o *Options) {
	b := image.Spec.Build
	n := b.Native
	volumes := []corev1.Volume{{Name: "build", VolumeSource: emptyDir()}}
	mounts := []corev1.VolumeMount{mount("state", stateDir, true), mount("build", buildDir, false), mount("source", sourceDir, true),
		mount("work", "/tmp", false)}
	var env []corev1.EnvVar
	for _, arg := range b.Args {
		env = append(env, corev1.EnvVar{Name: arg.Name, Value: literal(arg.Value)})
	}
	env = append(env,
		corev1.EnvVar{Name: "DROVER_STATE", Value: stateDir}, corev1.EnvVar{Name: "DROVER_SOURCE", Value: sourceDir},
		corev1.EnvVar{Name: "HOME", Value: "/tmp"}, corev1.EnvVar{Name: "KERNEL_HEADERS", Value: headersDir})
	var containers []corev1.Container
	if n.HeadersImage != "" {
		volume, fetch := content(&image.Spec, o, "headers", n.HeadersImage, headersDir)
		volumes, containers = append(volumes, volume), append(containers, fetch...)
		mounts = append(mounts, mount("headers", headersDir, true))
	}
	if n.SourceImage != "" {
		volume, fetch := content(&image.Spec, o, "source", n.SourceImage, sourceDir)
		volumes, containers = append(volumes, volume), append(containers, fetch...)
	} else {
		// The ConfigMap can change while the Job runs: a step copies it and compares the digest.
		volumes = append(volumes, corev1.Volume{Name: "source", VolumeSource: emptyDir()},
			configMapVolume("source-map", corev1.ConfigMapVolumeSource{LocalObjectReference: *n.SourceConfigMap}))
		containers = append(containers, step(o, StepSource, []string{"--from", sourceMapDir, "--to", sourceDir, "--digest", b.SourceDigest},
			mount("source-map", sourceMapDir, true), mount("source", sourceDir, false)))
	}
	for _, name := range b.Secrets {
		volume := volumeName("build", name)
		volumes = append(volumes, secretVolume(volume, name))
		mounts = append(mounts, mount(volume, secretDir(name), true))
	}
	resources := buildResources(b, o)
	compile := corev1.Container{
		Name: StepBuild, Image: n.ToolchainImage, ImagePullPolicy: corev1.PullIfNotPresent, WorkingDir: buildDir,
		Command: []string{"/bin/sh", "-c", nativeScript, "build", "-R"}, Args: n.Command,
		Env: slices.Concat(processors(&resources), env, proxies()), VolumeMounts: mounts, Resources: resources,
		SecurityContext:          delivery.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	// A toolchain's wrappers may write beside themselves.
	compile.SecurityContext.ReadOnlyRootFilesystem = nil
	pack := step(o, StepPack, append([]string{
		"--root", buildDir, "--dir-name", image.Spec.DirName, "--kernel", image.Spec.KernelVersion, "--arch", image.Spec.Architecture,
		"--layout", layoutDir,
	}, repeated("--artifact", n.Artifacts)...), mount("build", buildDir, true), mount("layout", layoutDir, false))
	pod.Volumes = append(pod.Volumes, volumes...)
	pod.InitContainers = append(pod.InitContainers, append(containers, compile, pack)...)
}

// explain implements builder: it finds the compiler's errors.
func (native) explain(log string) string {
	return excerpt(log, "error", "fatal:", "undefined", "no such file", "cannot ", "not found", "***")
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
