// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/claims"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/rollout"
)

const (
	// waitName is our init container's name.
	waitName = "wait-for-kernel-module"

	partOfLabel = "app.kubernetes.io/part-of"
	partOf      = "drover"

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

// nodeCritical is the priority class of the pods where no ModulePolicy says otherwise, as upstream.
const nodeCritical = "system-node-critical"

// Pods is what the operator, and not the Module, says of the pods of a device plugin or DRA driver.
type Pods struct {
	AgentImage string // holds the program that waits for the kernel module
	Priority   string // their priority class; empty: the cluster's default
}

// DaemonSet runs a Module's device plugin or DRA driver, with upstream's priority; nil: it asks for
// neither. agentImage holds the program that waits for the kernel module.
func DaemonSet(module *v1beta1.Module, agentImage string) (*appsv1.DaemonSet, error) {
	return daemonSetOf(module, Pods{agentImage, nodeCritical})
}

func daemonSetOf(module *v1beta1.Module, pods Pods) (*appsv1.DaemonSet, error) {
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
				Spec:       podSpec(module, w, pods),
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
		ds.Annotations[claims.DriverAnnotation] = d.DriverName
	}
	return ds, nil
}

func podSpec(module *v1beta1.Module, w *workload, pods Pods) corev1.PodSpec {
	main := container(w.role, w.main, w.mounts...)
	main.Env = withOurs(w.env, main.Env)
	main.LivenessProbe = w.liveness
	main.ReadinessProbe = readiness(module)
	spec := corev1.PodSpec{
		InitContainers:               initContainers(module, w, pods.AgentImage),
		Containers:                   []corev1.Container{main},
		NodeSelector:                 nodeSelector(module),
		PriorityClassName:            pods.Priority,
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
		SecurityContext: delivery.Restricted(),
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

const (
	// DevVolume is the host's /dev in our init container; a Module's volumes may not use the name.
	DevVolume = "drover-host-dev"
	// devDir is where our init container sees the host's /dev.
	devDir = "/host/dev"
)

// waitFor is the command line of our init container, which checks what the node's agent checks.
func waitFor(loader *v1beta1.ModuleLoaderContainerSpec) (args []string, mounts []corev1.VolumeMount) {
	args = []string{"wait", "--module", loader.Modprobe.ModuleName}
	for i := range loader.ReadyWhen {
		switch check := &loader.ReadyWhen[i]; {
		case check.DeviceNode != "":
			args = append(args, "--device-node", check.DeviceNode)
			mounts = []corev1.VolumeMount{{Name: DevVolume, MountPath: devDir, ReadOnly: true}}
		case check.Sysfs != nil && !ofNetwork(check.Sysfs.Path):
			args = append(args, "--sysfs", check.Sysfs.Path, "--value", check.Sysfs.Value)
		}
	}
	return args, mounts
}

// ofNetwork is true for paths of which each network namespace, and so the pod, has its own.
func ofNetwork(path string) bool { return slices.Contains(strings.Split(path, "/"), "net") }

func devVolumes(containers []corev1.Container) []corev1.Volume {
	for i := range containers {
		if containers[i].Name == waitName && len(containers[i].VolumeMounts) > 0 {
			return []corev1.Volume{{
				Name:         DevVolume,
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev", Type: ptr.To(corev1.HostPathDirectory)}},
			}}
		}
	}
	return nil
}

func readiness(module *v1beta1.Module) *corev1.Probe {
	if module.Spec.ModuleLoader == nil {
		return nil
	}
	for i := range module.Spec.ModuleLoader.Container.ReadyWhen {
		if command := module.Spec.ModuleLoader.Container.ReadyWhen[i].Command; len(command) > 0 {
			return &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}},
				PeriodSeconds: 10, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 1,
			}
		}
	}
	return nil
}

// versionLabels select, where node labels drive a Module's upgrades, the nodes for the plugin of
// its version, and distinguish the DaemonSets of its versions; otherwise empty.
func versionLabels(module *v1beta1.Module) map[string]string {
	if !rollout.Labelled(module) {
		return nil
	}
	return map[string]string{v1beta1.VersionScheduleLabel(module.Namespace, module.Name): module.Spec.ModuleLoader.Container.Version}
}

// versioned gives each version its own DaemonSet where node labels drive upgrades, so that nodes
// keep the plugin that fits their kernel module until their label changes.
func versioned(ds *appsv1.DaemonSet, module *v1beta1.Module, role string) {
	labels := versionLabels(module)
	if len(labels) == 0 {
		return
	}
	ds.Name = Name(module.Name+"-"+kube.Digest(module.Spec.ModuleLoader.Container.Version, hashDigits), role)
	for _, of := range []map[string]string{ds.Labels, ds.Spec.Selector.MatchLabels, ds.Spec.Template.Labels} {
		maps.Copy(of, labels)
	}
}

// serves reports whether a DaemonSet of another version still has nodes.
func serves(ds *appsv1.DaemonSet, module *v1beta1.Module) bool {
	_, version := ds.Labels[v1beta1.VersionScheduleLabel(module.Namespace, module.Name)]
	return rollout.Labelled(module) && version && !vacated(ds)
}

func vacated(ds *appsv1.DaemonSet) bool {
	return ds.Status.ObservedGeneration >= ds.Generation && ds.Status.DesiredNumberScheduled == 0
}

// setChanged also lets through that a DaemonSet has lost its last node.
func setChanged(before, now *appsv1.DaemonSet) bool {
	return specChanged(before, now) || vacated(before) != vacated(now)
}
