// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
)

const (
	// waitName is our init container's name.
	waitName = "wait-for-kernel-module"

	maxName    = 63
	hashDigits = 8
)

// Name is the name of a Module's DaemonSet in a role, and of its own ServiceAccount.
func Name(module, role string) string {
	suffix := "-" + role
	if len(module)+len(suffix) <= maxName {
		return module + suffix
	}
	return module[:maxName-len(suffix)-hashDigits-1] + "-" + kube.Digest(module, hashDigits) + suffix
}

// labelsFor are on every object made for a Module in a role, and select its pods.
func labelsFor(module *v1beta1.Module, role string) map[string]string {
	return map[string]string{v1beta1.RoleLabel: role, v1beta1.ModuleNameLabel: module.Name}
}

func objectMeta(module *v1beta1.Module, role string) metav1.ObjectMeta {
	labels := labelsFor(module, role)
	labels[partOfLabel] = partOf
	return metav1.ObjectMeta{
		Name:        Name(module.Name, role),
		Namespace:   module.Namespace,
		Labels:      labels,
		Annotations: map[string]string{kube.ModuleAnnotation: string(module.UID)},
	}
}

const (
	partOfLabel = "app.kubernetes.io/part-of"
	partOf      = "drover"
)

// ServiceAccount is made for a Module that names none; nil: it names one, or has no workload.
func ServiceAccount(module *v1beta1.Module) *corev1.ServiceAccount {
	w := workloadOf(module)
	if w == nil || w.account != "" {
		return nil
	}
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: objectMeta(module, w.role),
	}
}

// DaemonSet runs a Module's device plugin or DRA driver; nil: it asks for neither. agentImage holds
// the program that waits for the kernel module.
func DaemonSet(module *v1beta1.Module, agentImage string) (*appsv1.DaemonSet, error) {
	w := workloadOf(module)
	if w == nil {
		return nil, nil
	}
	labels := labelsFor(module, w.role)
	podLabels := labelsFor(module, w.role)
	podLabels[partOfLabel] = partOf
	ds := &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: objectMeta(module, w.role),
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
				Spec:       podSpec(module, w, agentImage),
			},
		},
	}
	versioned(ds, module, w.role)
	hash, err := kube.Hash(&ds.Spec)
	if err != nil {
		return nil, err
	}
	ds.Annotations[kube.HashAnnotation] = hash
	if d := module.Spec.DRA; d != nil {
		ds.Annotations[driverAnnotation] = d.DriverName
	}
	return ds, nil
}

func podSpec(module *v1beta1.Module, w *workload, agentImage string) corev1.PodSpec {
	main := container(w.role, w.main, w.mounts...)
	main.Env = withOurs(w.env, main.Env)
	main.LivenessProbe = w.liveness
	main.ReadinessProbe = readiness(module)
	spec := corev1.PodSpec{
		InitContainers:               initContainers(module, w, agentImage),
		Containers:                   []corev1.Container{main},
		NodeSelector:                 nodeSelector(module),
		PriorityClassName:            "system-node-critical",
		Tolerations:                  slices.Clone(placement.Tolerations(module)),
		ImagePullSecrets:             delivery.PullSecrets(module, w.pullSecrets...),
		ServiceAccountName:           w.account,
		AutomountServiceAccountToken: w.automount,
		Volumes:                      append(slices.Clone(w.ownVolumes), w.volumes...),
		HostNetwork:                  w.hostNetwork,
	}
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = Name(module.Name, w.role)
	}
	spec.Volumes = append(spec.Volumes, devVolumes(spec.InitContainers)...)
	return spec
}

// nodeSelector is the ready label. Without a moduleLoader the driver is expected in the kernel, so
// that the Module's own selector applies.
func nodeSelector(module *v1beta1.Module) map[string]string {
	if module.Spec.ModuleLoader == nil {
		return module.Spec.Selector
	}
	labels := map[string]string{v1beta1.ReadyLabel(module.Namespace, module.Name): ""}
	maps.Copy(labels, versionLabels(module))
	return labels
}

// initContainers are ours, which waits until the kernel has the module, then the user's. A label
// can be older than a reboot.
func initContainers(module *v1beta1.Module, w *workload, agentImage string) []corev1.Container {
	var containers []corev1.Container
	if loader := module.Spec.ModuleLoader; loader != nil && loader.Container.Modprobe.ModuleName != "" {
		containers = append(containers, waitContainer(&loader.Container, agentImage))
	}
	if w.init != nil {
		containers = append(containers, container(w.role+"-init", w.init))
	}
	return containers
}

func waitImage(daemonSet *appsv1.DaemonSet) string {
	containers := daemonSet.Spec.Template.Spec.InitContainers
	for i := range containers {
		if containers[i].Name == waitName {
			return containers[i].Image
		}
	}
	return ""
}

func waitContainer(loader *v1beta1.ModuleLoaderContainerSpec, agentImage string) corev1.Container {
	args, mounts := waitFor(loader)
	return corev1.Container{
		Name:            waitName,
		Image:           agentImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            args,
		VolumeMounts:    mounts,
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

// container is a user's. An unset securityContext means privileged, as upstream.
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
