// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	// deadlineSeconds ends a carrier that nobody collects: a node whose agent is away must not keep
	// pods forever.
	deadlineSeconds = 900

	imageVolume = "image"
	outVolume   = "out"
	imageDir    = "/image"
	outDir      = "/out"
	copyName    = "copy"
	exportName  = "export"

	defaultServiceAccount = "default"
)

// sizeLimit bounds what one delivery may put on a node's disk.
var sizeLimit = resource.MustParse("1Gi")

// Request is one delivery to one node.
type Request struct {
	// Module that the delivery is for. The carrier lives in its namespace and belongs to it.
	Module *v1beta1.Module
	// Config is what to load, resolved for the node's kernel.
	Config *v1beta1.ModuleConfig
	// Image is the reference to pull, with the digest of what was made in the cluster; "" is Config's.
	// A node may hold something older under the tag.
	Image string
	// ID of the delivery.
	ID string
	// Node that gets it.
	Node string
	// Mode is ModeImageVolume or ModeInitContainer.
	Mode Mode
	// User is the numeric user of the pod when the image itself runs in it. Most kernel module images
	// name no user, which is root, and the kubelet starts no such container in a pod that must not run
	// as root. Nil leaves it to the cluster: OpenShift chooses from a range per namespace and refuses
	// others.
	User *int64
	// AgentImage holds the program that exports the image's content.
	AgentImage string
}

// Carrier is the pod that makes a delivery: it passes Pod Security "restricted", holds no token,
// and its name, which an admission policy seals, follows from the delivery.
func Carrier(r *Request) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: carrierMeta(r),
		Spec: corev1.PodSpec{
			// The scheduler is not asked: a kernel module goes to each selected node, whatever is free
			// there.
			NodeName:              r.Node,
			RestartPolicy:         corev1.RestartPolicyOnFailure,
			ActiveDeadlineSeconds: ptr.To[int64](deadlineSeconds),
			// It holds nothing that could be lost, so that the API server need not wait for the kubelet: no
			// second delete and no last status of each, and none stays on a node that is lost.
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			ServiceAccountName:            ServiceAccount(r.Module),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   ptr.To(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			ImagePullSecrets: PullSecrets(r.Module),
			Containers:       []corev1.Container{exportContainer(r)},
			Volumes: []corev1.Volume{
				{Name: imageVolume, VolumeSource: imageSource(r)},
				{Name: outVolume, VolumeSource: emptyDir()},
			},
		},
	}
	if r.Mode == ModeInitContainer {
		pod.Spec.InitContainers = []corev1.Container{copyContainer(r)}
		pod.Spec.SecurityContext.RunAsUser = r.User
	}
	return pod
}

// ServiceAccount is the name of the ServiceAccount whose pull secrets the Module's deliveries use.
func ServiceAccount(m *v1beta1.Module) string {
	return cmp.Or(ptr.Deref(m.Spec.ModuleLoader, v1beta1.ModuleLoaderSpec{}).ServiceAccountName, defaultServiceAccount)
}

// PullSecrets are the Secrets that pull a Module's images, and more, each once. Empty names are
// none.
func PullSecrets(m *v1beta1.Module, more ...corev1.LocalObjectReference) []corev1.LocalObjectReference {
	all := slices.Concat(m.Spec.ImageRepoSecrets, more)
	if m.Spec.ImageRepoSecret != nil {
		all = slices.Insert(all, 0, *m.Spec.ImageRepoSecret)
	}
	var kept []corev1.LocalObjectReference
	for _, secret := range all {
		if secret.Name != "" && !slices.Contains(kept, secret) {
			kept = append(kept, secret)
		}
	}
	return kept
}

// pullsAs is a digest of what decides whether a pull is allowed, and of the reference where that
// can change under one delivery. The pod itself does not tell: the API server adds the Secrets of
// the ServiceAccount to a pod that names none.
func pullsAs(m *v1beta1.Module, image string) string {
	names := []string{ServiceAccount(m)}
	for _, secret := range PullSecrets(m) {
		names = append(names, secret.Name)
	}
	if image != "" {
		names = append(names, image)
	}
	return digest(strings.Join(names, "/"), nameDigits)
}

// PullsAs reports whether a carrier pulls with what its Module names now, and what Request.Image
// says now. One that says nothing of it is believed.
func PullsAs(carrier *corev1.Pod, m *v1beta1.Module, image string) bool {
	as, says := carrier.Annotations[v1beta1.PullsAsAnnotation]
	return !says || as == pullsAs(m, image)
}

func carrierMeta(r *Request) metav1.ObjectMeta {
	m := r.Module
	return metav1.ObjectMeta{
		Namespace: m.Namespace,
		Name:      CarrierName(m.Namespace, m.Name, r.Node, r.ID),
		Labels: map[string]string{
			v1beta1.CarrierLabel:        "",
			v1beta1.ModuleNameLabel:     m.Name,
			"app.kubernetes.io/part-of": "drover",
			// A service mesh's sidecar would keep the pod from passing its shape's admission policy.
			"sidecar.istio.io/inject": "false",
		},
		Annotations: map[string]string{
			v1beta1.ModuleNamespaceAnnotation: m.Namespace,
			v1beta1.ModuleNameAnnotation:      m.Name,
			v1beta1.DeliveryAnnotation:        r.ID,
			v1beta1.PullsAsAnnotation:         pullsAs(r.Module, r.Image),
			"linkerd.io/inject":               "disabled",
		},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1beta1.GroupVersion.String(),
			Kind:       "Module",
			Name:       m.Name,
			UID:        m.UID,
		}},
	}
}

func exportContainer(r *Request) corev1.Container {
	return corev1.Container{
		Name:            exportName,
		Image:           r.AgentImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            slices.Concat([]string{"export"}, ExportArgs(r.Config), []string{"--from", imageDir, "--to", outDir}),
		Resources:       resources(),
		SecurityContext: Restricted(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: imageVolume, MountPath: imageDir, ReadOnly: true},
			{Name: outVolume, MountPath: outDir},
		},
	}
}

// ExportArgs are the flags that say what is exported from an image. They leave the program to the
// image's entry point: the admission policy wants the agent's image and no command.
func ExportArgs(config *v1beta1.ModuleConfig) []string {
	modprobe := &config.Modprobe
	args := []string{"--kernel", config.KernelVersion, "--dir-name", modprobe.DirName}
	if modprobe.ModuleName != "" {
		args = append(args, "--module", modprobe.ModuleName)
	}
	if len(modprobe.ModulesLoadingOrder) > 0 {
		args = append(args, "--load-order", strings.Join(modprobe.ModulesLoadingOrder, ","))
	}
	if modprobe.FirmwarePath != "" {
		args = append(args, "--firmware-path", modprobe.FirmwarePath)
	}
	if NeedsWholeTree(modprobe) {
		args = append(args, "--whole-tree")
	}
	return args
}

func imageSource(r *Request) corev1.VolumeSource {
	if r.Mode == ModeInitContainer {
		return emptyDir()
	}
	return corev1.VolumeSource{Image: &corev1.ImageVolumeSource{
		Reference:  cmp.Or(r.Image, r.Config.ContainerImage),
		PullPolicy: pullPolicy(r),
	}}
}

// pullPolicy of the image: what an order calls none. Kubernetes' own default goes by the tag.
func pullPolicy(r *Request) corev1.PullPolicy {
	return cmp.Or(r.Config.ImagePullPolicy, corev1.PullIfNotPresent)
}

func emptyDir() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(sizeLimit)}}
}

// Restricted is what Pod Security calls so. It names no user on purpose: our images name theirs,
// and OpenShift's ranges refuse a fixed one.
func Restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		RunAsNonRoot:             ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// resources are set in full, because a ResourceQuota may refuse a pod without them. Requests are
// zero, in words: a carrier is bound to its node, works for seconds, and then sleeps, so it
// reserves nothing, and the kubelet of a full node takes it (OutOfcpu, OutOfmemory otherwise). Left
// out, the limits, or a LimitRange's defaults, would take their place.
func resources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:              *resource.NewMilliQuantity(0, resource.DecimalSI),
			corev1.ResourceMemory:           *resource.NewQuantity(0, resource.BinarySI),
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(0, resource.BinarySI),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"),
			// A compressed module of the largest size is unpacked in memory.
			corev1.ResourceMemory: resource.MustParse("1Gi"),
			// The two directories of the init container mode, and a little for logs.
			corev1.ResourceEphemeralStorage: resource.MustParse("2100Mi"),
		},
	}
}

// Mode says how a carrier pod gets at the content of a kernel module image.
type Mode string

const (
	// ModeAuto uses an image volume where the node can mount one, else an init container.
	ModeAuto Mode = "auto"
	// ModeImageVolume mounts the image as a volume.
	ModeImageVolume Mode = "imageVolume"
	// ModeInitContainer runs `cp` in a container made from the image. Besides nodes that cannot mount
	// images, it is for clusters whose image policies look at containers only.
	ModeInitContainer Mode = "initContainer"
)

// ParseMode reads a mode as it is written on a command line.
func ParseMode(text string) (Mode, error) {
	switch mode := Mode(text); mode {
	case ModeAuto, ModeImageVolume, ModeInitContainer:
		return mode, nil
	}
	return "", fmt.Errorf("unknown delivery mode %q: want %s, %s or %s", text, ModeAuto, ModeImageVolume, ModeInitContainer)
}

// Oldest versions that mount image volumes without any setting. The kubelet's feature gate is on by
// default from 1.35; containerd learnt it in 2.1, CRI-O in 1.31.
var (
	oldestKubelet    = version.MustParseGeneric("1.35.0")
	oldestContainerd = version.MustParseGeneric("2.1.0")
	oldestCRIO       = version.MustParseGeneric("1.31.0")
)

// AgentImageOf is the agent's image in a carrier; empty: it has none.
func AgentImageOf(carrier *corev1.Pod) string {
	for i := range carrier.Spec.Containers {
		if carrier.Spec.Containers[i].Name == exportName {
			return carrier.Spec.Containers[i].Image
		}
	}
	return ""
}

// ModeOf is the mode of a carrier that exists.
func ModeOf(carrier *corev1.Pod) Mode {
	for i := range carrier.Spec.InitContainers {
		if carrier.Spec.InitContainers[i].Name == copyName {
			return ModeInitContainer
		}
	}
	return ModeImageVolume
}

// For is the mode to use on a node. It is a property of the node, not of the cluster: the API
// server accepts image volumes for kubelets and runtimes that can never start such a pod.
func (m Mode) For(info *corev1.NodeSystemInfo) Mode {
	if m != ModeAuto && m != "" {
		return m
	}
	if mountsImages(info) {
		return ModeImageVolume
	}
	return ModeInitContainer
}

func mountsImages(info *corev1.NodeSystemInfo) bool {
	runtime, number, found := strings.Cut(info.ContainerRuntimeVersion, "://")
	if !found || !atLeast(info.KubeletVersion, oldestKubelet) {
		return false
	}
	switch runtime {
	case "containerd":
		return atLeast(number, oldestContainerd)
	case "cri-o":
		return atLeast(number, oldestCRIO)
	}
	return false
}

// atLeast compares major and minor numbers only, so that a pre-release or a vendor's suffix
// ("v1.35.0-rc.1", "1.35.2+k3s1") counts as its release. What cannot be parsed is not new enough:
// the init container works everywhere.
func atLeast(text string, oldest *version.Version) bool {
	have, err := version.ParseGeneric(text)
	if err != nil {
		return false
	}
	return have.Major() > oldest.Major() || (have.Major() == oldest.Major() && have.Minor() >= oldest.Minor())
}
