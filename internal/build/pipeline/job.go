// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
)

// The steps of a Job, by the names of their containers.
const (
	StepCheck        = "check"
	StepFetch        = "fetch" // followed by the volume: fetch-headers
	StepSource       = "source"
	StepBuild        = "build"
	StepPack         = "pack"
	StepPull         = "pull"
	StepPushUnsigned = "push-unsigned"
	StepSign         = "sign"
	StepPush         = "push"
	StepExamine      = "examine"
)

const (
	stateDir       = "/drover/state"
	layoutDir      = "/drover/layout"
	workDir        = "/drover/work"
	keyDir         = "/drover/key"
	certDir        = "/drover/cert"
	mergedDir      = "/drover/credentials"
	environmentDir = "/drover/environment"

	// lostAfter is how many seconds a Job stays on a node that is unreachable.
	lostAfter int64 = 60

	authFile = "config.json"
	// KMM's keys of the Secrets for signing.
	keyKey, certKey = "key", "cert"

	// EnvironmentConfigMap is an optional ConfigMap in a Module's namespace: registries.conf and more
	// such files for Buildah, ca.crt for all registries, and HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
	EnvironmentConfigMap = "drover-build-environment"
	caFile               = "ca.crt"
)

// Annotations of a Job.
const (
	// TriggerAnnotation is the rebuild trigger that the Job answers.
	TriggerAnnotation = "drover.dev/trigger"
	// CauseAnnotation is why the Job was made.
	CauseAnnotation = "drover.dev/cause"
	// SettingsAnnotation is a digest of the settings of the Job's pod.
	SettingsAnnotation = "drover.dev/settings"
	// ResultAnnotation is the Job's [Outcome], because the pod may go before the Job.
	ResultAnnotation = "drover.dev/result"
)

// Options are the operator's.
type Options struct {
	// SignerImage holds drover-signer, BuildahImage buildah, best by digest. ExaminerImage is the
	// operator's own, which can only examine: without a signer image, that is all that Jobs do.
	SignerImage, BuildahImage, ExaminerImage string
	// HostModules mounts the node's /lib/modules into builds from Dockerfiles, as KMM does, by a
	// hostPath volume. Pod Security only admits it in privileged namespaces; there a build has no
	// profiles, too.
	HostModules bool
	// User is the numeric user of steps whose image may name none; nil: the cluster chooses.
	User *int64
	// Deadline ends a Job.
	Deadline time.Duration
	// Hub: Jobs have the label [v1alpha1.HubLabel].
	Hub bool
	// BuildRequests and BuildLimits are the compiling container's, over the defaults.
	BuildRequests, BuildLimits corev1.ResourceList
	// Selector are labels of the nodes on which Jobs run whose Module has no selector for them in
	// build or sign. Empty: those that the Module itself chooses.
	Selector map[string]string
	// AccountSecrets are the ServiceAccount's pull secrets, which, as for a kubelet, may be missing.
	AccountSecrets []corev1.LocalObjectReference
	// Delivery says how to read images. The caller sets MountImages by it, with [MountsImages].
	Delivery delivery.Mode
	// MountImages: the pod has image volumes. Otherwise a step unpacks images before the build.
	MountImages bool
}

// pullSecrets are the Module's, then its ServiceAccount's.
func pullSecrets(spec *v1alpha1.ModuleImageSpec, o *Options) []corev1.LocalObjectReference {
	all := slices.Clone(spec.RepoSecrets)
	for _, secret := range o.AccountSecrets {
		if secret.Name != "" && !slices.Contains(all, secret) {
			all = append(all, secret)
		}
	}
	return all
}

// JobName of the n-th Job of an image.
func JobName(image *v1alpha1.ModuleImage, n int) string { return image.Name + "-" + strconv.Itoa(n) }

// Job renders the n-th Job of an image. One Job has one try: the operator makes the next.
func Job(image *v1alpha1.ModuleImage, n int, cause string, o *Options) *batchv1.Job {
	labels := map[string]string{
		v1alpha1.ImageLabel: image.Name, v1beta1.ModuleNameLabel: image.Spec.Module, "app.kubernetes.io/part-of": "drover",
		// A service mesh's sidecar would keep the pod from ending.
		"sidecar.istio.io/inject": "false",
	}
	own := maps.Clone(labels)
	if o.Hub {
		own[v1alpha1.HubLabel] = ""
	}
	annotations := map[string]string{CauseAnnotation: cause, SettingsAnnotation: Settings(image, o)}
	if t := image.Spec.Trigger; t != nil {
		annotations[TriggerAnnotation] = strconv.Itoa(*t)
	}
	if asked := RetryOf(&image.Spec); asked != "" {
		annotations[v1beta1.RetryAnnotation] = asked
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: image.Namespace, Name: JobName(image, n), Labels: own, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "ModuleImage", Name: image.Name, UID: image.UID, Controller: ptr.To(true),
			}},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:          ptr.To[int32](0),
			ActiveDeadlineSeconds: ptr.To(int64(o.Deadline.Seconds())),
			// A pod that a node or the cluster removes says nothing about the image.
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			}}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"linkerd.io/inject": "disabled"}},
				Spec:       pod(image, o),
			},
		},
	}
}

// Settings is a digest of a Job's pod as it would be made now: the inputs, and what does not decide
// what the image holds, such as credentials, TLS, where the pod may run and the steps' image. A
// failure with other settings says nothing about these.
func Settings(image *v1alpha1.ModuleImage, o *Options) string {
	return digest(encode(pod(image, o)))[:nameDigits]
}

func pod(image *v1alpha1.ModuleImage, o *Options) corev1.PodSpec {
	spec := &image.Spec
	s := corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		ServiceAccountName:           spec.ServiceAccountName,
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		ShareProcessNamespace:        ptr.To(false),
		ImagePullSecrets:             pullSecrets(spec, o),
		Tolerations:                  append(leaving(), spec.Tolerations...),
		NodeSelector:                 nodeSelector(spec, o),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: o.User,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Volumes: []corev1.Volume{
			{Name: "state", VolumeSource: emptyDir()}, {Name: "layout", VolumeSource: emptyDir()}, {Name: "work", VolumeSource: emptyDir()},
			// For our own steps: no container of the user's sees it.
			{Name: "scratch", VolumeSource: emptyDir()},
			configMapVolume("environment", corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: EnvironmentConfigMap}, Optional: ptr.To(true),
			}),
		},
	}
	for _, secret := range s.ImagePullSecrets {
		s.Volumes = append(s.Volumes, authVolume(secret.Name))
	}
	if made(spec) {
		s.InitContainers = []corev1.Container{check(spec, o)}
	}
	if mergesAuth(spec, o) {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: "auth", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
		}})
	}
	if b := builderOf(spec); b != nil {
		b.render(&s, image, o)
	} else if spec.Sign != nil {
		s.InitContainers = append(s.InitContainers, pull(spec, o))
	}
	if spec.Sign != nil {
		s.Volumes = append(s.Volumes, itemVolume("key", spec.Sign.KeySecret, keyKey, keyKey),
			itemVolume("cert", spec.Sign.CertSecret, certKey, certKey))
		if spec.Build != nil && spec.Sign.UnsignedImage != "" && spec.Examine == nil {
			s.InitContainers = append(s.InitContainers, pushUnsigned(spec, o))
		}
		s.InitContainers = append(s.InitContainers, sign(spec, o))
	}
	if spec.Examine != nil {
		s.Containers = []corev1.Container{examine(spec, o)}
	} else {
		s.Containers = []corev1.Container{push(spec, o)}
	}
	return s
}

// leaving has the pod evicted from a lost node after a minute. A taint's first toleration counts.
func leaving() []corev1.Toleration {
	var all []corev1.Toleration
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		all = append(all, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(lostAfter),
		})
	}
	return all
}

func check(spec *v1alpha1.ModuleImageSpec, o *Options) corev1.Container {
	args, mounts := registry(spec, o, spec.Image, spec.RegistryTLS)
	args = append(args, "--hash", spec.Hash)
	mounts = append(mounts, mount("state", stateDir, false))
	if mergesAuth(spec, o) {
		args, mounts = append(args, "--merge-auth", path.Join(mergedDir, authFile)), append(mounts, mount("auth", mergedDir, false))
	}
	if spec.Sign != nil {
		// If another certificate signed the image, the key has changed.
		args, mounts = append(args, "--cert", certFile(spec.Sign)), append(mounts, mount("cert", path.Dir(certFile(spec.Sign)), true))
	}
	return step(o, StepCheck, args, mounts...)
}

// mergesAuth reports whether the builder needs the credentials of several Secrets in one file.
func mergesAuth(spec *v1alpha1.ModuleImageSpec, o *Options) bool {
	return spec.Build != nil && spec.Build.Native == nil && len(pullSecrets(spec, o)) > 0
}

func pull(spec *v1alpha1.ModuleImageSpec, o *Options) corev1.Container {
	args, mounts := registry(spec, o, spec.Sign.UnsignedImage, spec.Sign.UnsignedImageRegistryTLS)
	return step(o, StepPull, append(args, "--layout", layoutDir), append(mounts, mount("layout", layoutDir, false))...)
}

func pushUnsigned(spec *v1alpha1.ModuleImageSpec, o *Options) corev1.Container {
	args, mounts := registry(spec, o, spec.Sign.UnsignedImage, spec.Sign.UnsignedImageRegistryTLS)
	c := step(o, StepPush, append(args, "--layout", layoutDir, "--hash", spec.Hash), append(mounts, mount("layout", layoutDir, true))...)
	c.Name = StepPushUnsigned
	return c
}

// sign is the only step that sees the key; it reaches no registry.
func sign(spec *v1alpha1.ModuleImageSpec, o *Options) corev1.Container {
	args := append([]string{
		"--layout", layoutDir, "--key", keyFile(spec.Sign), "--cert", certFile(spec.Sign),
	}, repeated("--file", spec.Sign.Files)...)
	return step(o, StepSign, args,
		mount("layout", layoutDir, false), mount("key", path.Dir(keyFile(spec.Sign)), true), mount("cert", path.Dir(certFile(spec.Sign)), true))
}

func push(spec *v1alpha1.ModuleImageSpec, o *Options) corev1.Container {
	args, mounts := registry(spec, o, spec.Image, spec.RegistryTLS)
	args, mounts = append(args, "--layout", layoutDir, "--hash", spec.Hash), append(mounts, mount("layout", layoutDir, true))
	if spec.Sign != nil {
		args, mounts = append(args, "--cert", certFile(spec.Sign)), append(mounts, mount("cert", path.Dir(certFile(spec.Sign)), true))
		if neighbours(spec.Image, spec.Sign.UnsignedImage) {
			// The registry has most layers already.
			args = append(args, "--mount-from", spec.Sign.UnsignedImage)
		}
	}
	return step(o, StepPush, args, mounts...)
}

// registry are the arguments and mounts of a step that reaches a registry.
func registry(spec *v1alpha1.ModuleImageSpec, o *Options, image string, tls v1beta1.TLSOptions) (args []string,
	mounts []corev1.VolumeMount) {
	args = []string{"--image", image}
	for i, secret := range pullSecrets(spec, o) {
		flag := "--auth"
		if i >= len(spec.RepoSecrets) {
			flag = "--account-auth"
		}
		args = append(args, flag, path.Join(authDir(secret.Name), authFile))
		mounts = append(mounts, mount(volumeName("auth", secret.Name), authDir(secret.Name), true))
	}
	if tls.Insecure {
		args = append(args, "--insecure")
	}
	if tls.InsecureSkipTLSVerify {
		args = append(args, "--skip-tls-verify")
	}
	args = append(args, "--ca", path.Join(environmentDir, caFile))
	return args, append(mounts, mount("environment", environmentDir, true))
}

// neighbours reports whether two images are in different repositories of one registry.
func neighbours(a, b string) bool {
	one, err := name.ParseReference(a)
	if err != nil {
		return false
	}
	other, err := name.ParseReference(b)
	return err == nil && one.Context().RegistryStr() == other.Context().RegistryStr() &&
		one.Context().RepositoryStr() != other.Context().RepositoryStr()
}

// step is a container that runs drover-signer, or what the operator's own image has of it. Each
// sees what check found.
func step(o *Options, called string, args []string, mounts ...corev1.VolumeMount) corev1.Container {
	if called != StepCheck {
		mounts = append(mounts, mount("state", stateDir, true), mount("scratch", "/tmp", false))
	}
	resources := stepResources()
	args = slices.Clone(args)
	for i := range args {
		args[i] = literal(args[i])
	}
	return corev1.Container{
		Name: called, Image: cmp.Or(o.SignerImage, o.ExaminerImage), ImagePullPolicy: corev1.PullIfNotPresent,
		Args: slices.Concat([]string{called}, args, []string{"--state", stateDir}),
		Env:  append(proxies(), goMemory(&resources)), VolumeMounts: mounts, Resources: resources, SecurityContext: delivery.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

func repeated(flag string, values []string) []string {
	args := make([]string, 0, 2*len(values))
	for _, value := range values {
		args = append(args, flag, value)
	}
	return args
}

// authDir, keyFile and certFile hold the Secret's name, for errors about a missing file.
func authDir(secret string) string { return path.Join("/drover/auth", secret) }

func keyFile(s *v1alpha1.ImageSign) string { return path.Join(keyDir, s.KeySecret, keyKey) }

func certFile(s *v1alpha1.ImageSign) string { return path.Join(certDir, s.CertSecret, certKey) }

// volumeName is short enough whatever the Secret is called.
func volumeName(kind, secret string) string { return kind + "-" + digest([]byte(secret))[:nameDigits] }

// authVolume holds credentials in either of a Secret's two forms.
func authVolume(secret string) corev1.Volume {
	v := itemVolume(volumeName("auth", secret), secret, corev1.DockerConfigJsonKey, authFile)
	v.Secret.Items = append(v.Secret.Items, corev1.KeyToPath{Key: corev1.DockerConfigKey, Path: corev1.DockerConfigKey})
	return v
}

// itemVolume holds one key of a Secret. It is optional: a step says at once what is missing, a pod
// that waits for a volume says nothing until the Job's deadline.
func itemVolume(name, secret, key, file string) corev1.Volume {
	v := secretVolume(name, secret)
	v.Secret.Items, v.Secret.Optional = []corev1.KeyToPath{{Key: key, Path: file}}, ptr.To(true)
	return v
}

func secretVolume(name, secret string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}
}

func configMapVolume(name string, source corev1.ConfigMapVolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &source}}
}

func emptyDir() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

// proxies come from the namespace's ConfigMap, in both spellings that programs know.
func proxies() []corev1.EnvVar {
	var env []corev1.EnvVar
	for _, key := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		from := &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: EnvironmentConfigMap}, Key: key, Optional: ptr.To(true),
		}}
		env = append(env, corev1.EnvVar{Name: key, ValueFrom: from}, corev1.EnvVar{Name: strings.ToLower(key), ValueFrom: from})
	}
	return env
}
