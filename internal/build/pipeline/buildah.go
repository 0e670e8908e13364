// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
)

// buildah builds from a Dockerfile.
type buildah struct{}

const (
	dockerfileDir = "/drover/dockerfile"
	hostModules   = "/host/lib/modules"
	// registriesDir is where Buildah looks for mirrors; no variable names another place.
	registriesDir = "/etc/containers/registries.conf.d"
	// caDirs are where Go programs look for authorities, besides the system's bundle.
	caDirs = environmentDir + ":/etc/ssl/certs"

	// buildahScript checks that the Dockerfile has not changed, builds it and writes an OCI layout for
	// steps that run as another user. $1 is the Dockerfile's digest, $2 the directory of the layout;
	// the rest are arguments of `buildah build`, never part of the text.
	buildahScript = `set -eu
if [ -e "$DROVER_STATE/done" ]; then exit 0; fi
digest=$1 layout=$2
shift 2
if ! echo "$digest  $DROVER_DOCKERFILE" | sha256sum -c --status -; then
  echo "error: the Dockerfile has changed since this Job was made" >&2
  exit 1
fi
umask 0000
mkdir -p "$DROVER_WORK/context"
if [ -n "${DROVER_AUTH:-}" ]; then export REGISTRY_AUTH_FILE=$DROVER_AUTH; fi
storage() { buildah --root "$DROVER_WORK/storage" --runroot "$DROVER_WORK/run" "$@"; }
storage build "$@" --file "$DROVER_DOCKERFILE" --tag localhost/drover:build "$DROVER_WORK/context"
storage push localhost/drover:build "oci:$layout:image"
chmod -R a+rwX "$layout"`
)

// render implements builder. RUN finds Secrets and the node's modules where KMM has them. The
// container runs as root, though without power over the node.
func (buildah) render(pod *corev1.PodSpec, image *v1alpha1.ModuleImage, o *Options) {
	b := image.Spec.Build
	mounts := []corev1.VolumeMount{
		mount("state", stateDir, true), mount("layout", layoutDir, false), mount("work", workDir, false),
		mount("dockerfile", dockerfileDir, true), mount("environment", environmentDir, true), mount("environment", registriesDir, true),
	}
	volumes := []corev1.Volume{configMapVolume("dockerfile", corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: b.DockerfileConfigMap},
		Items:                []corev1.KeyToPath{{Key: DockerfileKey, Path: DockerfileKey}},
	})}
	args := []string{"-c", buildahScript, "build", b.SourceDigest, layoutDir}
	resources := buildResources(b, o)
	for _, variable := range processors(&resources) { // before the user's own: the last of a name wins
		args = append(args, "--build-arg", variable.Name+"="+variable.Value)
	}
	args = append(args, buildahArgs(image)...)
	if o.HostModules {
		mounts = append(mounts, mount("host-modules", hostModules, true))
		volumes = append(volumes, corev1.Volume{Name: "host-modules", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: "/lib/modules", Type: ptr.To(corev1.HostPathDirectory),
		}}})
		args = append(args, "--volume", hostModules+":"+hostModules+":ro")
	}
	for _, name := range b.Secrets {
		volume := volumeName("build", name)
		mounts = append(mounts, mount(volume, secretDir(name), true))
		volumes = append(volumes, secretVolume(volume, name))
		args = append(args, "--volume", secretDir(name)+":"+secretDir(name)+":ro")
	}
	env := []corev1.EnvVar{
		{Name: "BUILDAH_ISOLATION", Value: "chroot"},
		{Name: "STORAGE_DRIVER", Value: "vfs"},
		{Name: "HOME", Value: workDir},
		{Name: "TMPDIR", Value: workDir},
		{Name: "DROVER_STATE", Value: stateDir},
		{Name: "DROVER_WORK", Value: workDir},
		{Name: "DROVER_DOCKERFILE", Value: filepath.Join(dockerfileDir, DockerfileKey)},
		{Name: "SSL_CERT_DIR", Value: caDirs},
	}
	if mergesAuth(&image.Spec, o) {
		mounts = append(mounts, mount("auth", mergedDir, true))
		env = append(env, corev1.EnvVar{Name: "DROVER_AUTH", Value: filepath.Join(mergedDir, authFile)})
	}
	pod.SecurityContext.SeccompProfile = nil
	pod.Volumes = append(pod.Volumes, volumes...)
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name: StepBuild, Image: b.Builder, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/bin/sh"}, Args: args,
		Env: append(env, proxies()...), VolumeMounts: mounts, Resources: resources, SecurityContext: rootInside(o.HostModules),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	})
}

// buildahArgs make the result depend on the inputs alone: no times, one platform, no cache.
func buildahArgs(image *v1alpha1.ModuleImage) []string {
	b := image.Spec.Build
	args := []string{"--format", "oci", "--timestamp", "0", "--no-cache", "--platform", "linux/" + image.Spec.Architecture}
	if tls := b.BaseImageRegistryTLS; tls.Insecure || tls.InsecureSkipTLSVerify {
		args = append(args, "--tls-verify=false")
	}
	for _, arg := range b.Args {
		args = append(args, "--build-arg", literal(arg.Name+"="+arg.Value))
	}
	return args
}

// literal is a text that stays as it is: kubelets replace $(NAME) in arguments and values of the
// environment by the variable of that name, and $$ by $.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// explain implements builder: it finds the errors of the compiler and of Buildah.
func (buildah) explain(log string) string {
	return excerpt(log, "error", "fatal:", "undefined", "no such file", "cannot ", "failed")
}

// rootInside is root without power over the node. Buildah enters a user namespace, where it mounts,
// changes owners and its root directory. The three capabilities, which Pod Security "baseline"
// admits, let it write that namespace's maps.
//
// A node's default profiles of seccomp and AppArmor forbid such a namespace or its mounts, and
// container runtimes set AppArmor's. Builds in privileged namespaces have no profiles.
func rootInside(privileged bool) *corev1.SecurityContext {
	s := &corev1.SecurityContext{
		RunAsUser: ptr.To[int64](0), RunAsNonRoot: ptr.To(false), AllowPrivilegeEscalation: ptr.To(false),
		Capabilities: &corev1.Capabilities{
			Drop: []corev1.Capability{"ALL"},
			Add:  []corev1.Capability{"SETFCAP", "SETGID", "SETUID"},
		},
	}
	if privileged {
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		s.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}
	return s
}
