// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	// Role is the value of the role label on everything made for a device plugin.
	Role = "device-plugin"

	// SocketVolume is the volume that every device plugin pod has; a Module's own volumes may not use the name.
	SocketVolume = "kubelet-device-plugins"
	// socketDir is where the kubelet listens for device plugins and finds theirs.
	socketDir = "/var/lib/kubelet/device-plugins"

	// hashAnnotation on a DaemonSet is the digest of what was asked for. It shows what a comparison with the object
	// cannot: a field that is no longer asked for.
	hashAnnotation = "drover.dev/desired-hash"

	// waitName is our init container's name.
	waitName = "wait-for-kernel-module"

	nameSuffix = "-device-plugin"
	maxName    = 63
	hashDigits = 8
)

// Name is the name of a Module's device plugin DaemonSet, and of its ServiceAccount when the Module names none.
func Name(module string) string {
	if len(module)+len(nameSuffix) <= maxName {
		return module + nameSuffix
	}
	sum := sha256.Sum256([]byte(module))
	return module[:maxName-len(nameSuffix)-hashDigits-1] + "-" + hex.EncodeToString(sum[:])[:hashDigits] + nameSuffix
}

// labelsFor are on every object made for a Module's device plugin, and select its pods.
func labelsFor(module *v1beta1.Module) map[string]string {
	return map[string]string{
		v1beta1.RoleLabel:       Role,
		v1beta1.ModuleNameLabel: module.Name,
	}
}

func objectMeta(module *v1beta1.Module, name string) metav1.ObjectMeta {
	labels := labelsFor(module)
	labels[partOfLabel] = partOf
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       module.Namespace,
		Labels:          labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(module, v1beta1.GroupVersion.WithKind("Module"))},
	}
}

const (
	partOfLabel = "app.kubernetes.io/part-of"
	partOf      = "drover"
)

// ServiceAccount is the account of a Module that names none, or nil when it names one.
func ServiceAccount(module *v1beta1.Module) *corev1.ServiceAccount {
	if module.Spec.DevicePlugin.ServiceAccountName != "" {
		return nil
	}
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: objectMeta(module, Name(module.Name)),
	}
}

// DaemonSet is what runs a Module's device plugin. agentImage holds the program of the init container that waits for
// the kernel module.
func DaemonSet(module *v1beta1.Module, agentImage string) (*appsv1.DaemonSet, error) {
	labels := labelsFor(module)
	podLabels := labelsFor(module)
	podLabels[partOfLabel] = partOf
	ds := &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: objectMeta(module, Name(module.Name)),
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
				Spec:       podSpec(module, agentImage),
			},
		},
	}
	hash, err := digest(&ds.Spec)
	if err != nil {
		return nil, err
	}
	ds.Annotations = map[string]string{hashAnnotation: hash}
	return ds, nil
}

func digest(spec *appsv1.DaemonSetSpec) (string, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode the DaemonSet: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16], nil
}

func podSpec(module *v1beta1.Module, agentImage string) corev1.PodSpec {
	plugin := module.Spec.DevicePlugin
	socketMount := corev1.VolumeMount{Name: SocketVolume, MountPath: socketDir}
	spec := corev1.PodSpec{
		InitContainers:               initContainers(module, agentImage),
		Containers:                   []corev1.Container{container("device-plugin", &plugin.Container, socketMount)},
		NodeSelector:                 nodeSelector(module),
		PriorityClassName:            "system-node-critical",
		Tolerations:                  slices.Clone(module.Spec.Tolerations),
		ServiceAccountName:           plugin.ServiceAccountName,
		AutomountServiceAccountToken: plugin.AutomountServiceAccountToken,
		Volumes: append([]corev1.Volume{{
			Name: SocketVolume,
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: socketDir, Type: ptr.To(corev1.HostPathDirectory),
			}},
		}}, plugin.Volumes...),
	}
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = Name(module.Name)
	}
	if secret := module.Spec.ImageRepoSecret; secret != nil && secret.Name != "" {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{*secret}
	}
	return spec
}

// nodeSelector is the ready label: the labels of nodes say where the kernel module is live. Without a moduleLoader the
// driver is expected in the kernel, so the Module's own selector applies.
func nodeSelector(module *v1beta1.Module) map[string]string {
	if module.Spec.ModuleLoader == nil {
		return module.Spec.Selector
	}
	return map[string]string{v1beta1.ReadyLabel(module.Namespace, module.Name): ""}
}

// initContainers are ours, which waits until the kernel itself says that the module is live, then the user's. A label
// can be older than a reboot; the pod cannot be.
func initContainers(module *v1beta1.Module, agentImage string) []corev1.Container {
	var containers []corev1.Container
	if loader := module.Spec.ModuleLoader; loader != nil && loader.Container.Modprobe.ModuleName != "" {
		containers = append(containers, waitContainer(loader.Container.Modprobe.ModuleName, agentImage))
	}
	if user := module.Spec.DevicePlugin.InitContainer; user != nil {
		containers = append(containers, container("device-plugin-init", user))
	}
	return containers
}

// waitImage is the image of our init container, or empty when there is none.
func waitImage(daemonSet *appsv1.DaemonSet) string {
	containers := daemonSet.Spec.Template.Spec.InitContainers
	for i := range containers {
		if containers[i].Name == waitName {
			return containers[i].Image
		}
	}
	return ""
}

func waitContainer(kernelModule, agentImage string) corev1.Container {
	return corev1.Container{
		Name:            waitName,
		Image:           agentImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            []string{"wait", "--module", kernelModule},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("10m"),
				corev1.ResourceMemory: resource.MustParse("16Mi"),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			RunAsNonRoot:             ptr.To(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// container is a user's container. An unset securityContext means privileged, as upstream has it; one that is set is
// taken as it is.
func container(name string, user *v1beta1.WorkloadContainer, ours ...corev1.VolumeMount) corev1.Container {
	securityContext := user.SecurityContext
	if securityContext == nil {
		securityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	}
	return corev1.Container{
		Name:            name,
		Image:           user.Image,
		ImagePullPolicy: user.ImagePullPolicy,
		Command:         user.Command,
		Args:            user.Args,
		Env:             user.Env,
		Resources:       user.Resources,
		VolumeMounts:    append(slices.Clone(ours), user.VolumeMounts...),
		SecurityContext: securityContext,
	}
}
