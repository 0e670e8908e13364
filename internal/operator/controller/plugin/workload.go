// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	// SocketVolume is in every device plugin pod; a Module's volumes may not use the name.
	SocketVolume = "kubelet-device-plugins"
	// socketDir is where the kubelet and device plugins meet.
	socketDir = "/var/lib/kubelet/device-plugins"
)

// workload is what differs between device plugins and DRA drivers.
type workload struct {
	// role is the value of the role label, the main container's name, and the end of objects' names.
	role string
	// main and init are the user's containers; init may be nil.
	main, init  *v1beta1.WorkloadContainer
	account     string // the ServiceAccount that the user names; empty: none
	automount   *bool
	pullSecrets []corev1.LocalObjectReference // the user's, besides the Module's
	volumes     []corev1.Volume               // the user's

	// ownVolumes, mounts and env come before the user's; init containers get none of them.
	ownVolumes []corev1.Volume
	mounts     []corev1.VolumeMount
	env        []corev1.EnvVar
	// liveness of the main container, or nil.
	liveness    *corev1.Probe
	hostNetwork bool
}

func workloadOf(module *v1beta1.Module) *workload {
	if p := module.Spec.DevicePlugin; p != nil {
		return devicePlugin(p)
	}
	if d := module.Spec.DRA; d != nil {
		return driver(module, d)
	}
	return nil
}

func devicePlugin(p *v1beta1.DevicePluginSpec) *workload {
	w := &workload{
		role: v1beta1.RoleDevicePlugin, main: &p.Container, init: p.InitContainer,
		account: p.ServiceAccountName, automount: p.AutomountServiceAccountToken, volumes: p.Volumes, pullSecrets: p.ImagePullSecrets,
	}
	w.mount(SocketVolume, socketDir, corev1.HostPathDirectory)
	return w
}

// mount gives the main container a directory of the host, at the same place.
func (w *workload) mount(volume, path string, kind corev1.HostPathType) {
	w.ownVolumes = append(w.ownVolumes, corev1.Volume{
		Name: volume,
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: path, Type: ptr.To(kind),
		}},
	})
	w.mounts = append(w.mounts, corev1.VolumeMount{Name: volume, MountPath: path})
}

// Directories of the kubelet, and of CDI files for the container runtime.
const (
	pluginsDir  = "/var/lib/kubelet/plugins/"
	registryDir = "/var/lib/kubelet/plugins_registry/"
	cdiDir      = "/var/run/cdi"
)

const (
	// healthPort and healthService are upstream's.
	healthPort    = 51515
	healthService = "liveness"
	// Ports of drivers on the node's network: below the kernel's ephemeral ones and Services'.
	firstHostPort = 20000
	hostPorts     = 10000
)

// driver is the workload of a DRA driver. Its pods have a network of their own unless the Module
// asks for the node's: then the health port, in HEALTHCHECK_PORT, is the Module's own, since two
// drivers on one node cannot share one.
func driver(module *v1beta1.Module, d *v1beta1.DRASpec) *workload {
	port := int32(healthPort)
	if d.HostNetwork {
		port = hostPort(module)
	}
	w := &workload{
		role: v1beta1.RoleDRA, main: &d.Container, init: d.InitContainer,
		account: d.ServiceAccountName, automount: d.AutomountServiceAccountToken, volumes: d.Volumes,
		hostNetwork: d.HostNetwork,
		liveness: &corev1.Probe{
			ProbeHandler:        corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port, Service: ptr.To(healthService)}},
			InitialDelaySeconds: 30, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3,
			SuccessThreshold: 1, // the default: unset, it would differ from what the API server stores
		},
	}
	w.mount("kubelet-plugins", pluginsDir, corev1.HostPathDirectoryOrCreate)
	w.mount("kubelet-plugins-registry", registryDir, corev1.HostPathDirectoryOrCreate)
	w.mount("cdi", cdiDir, corev1.HostPathDirectoryOrCreate)
	w.env = []corev1.EnvVar{
		{Name: "NODE_NAME", ValueFrom: field("spec.nodeName")},
		{Name: "POD_UID", ValueFrom: field("metadata.uid")},
		{Name: "CDI_ROOT", Value: cdiDir},
		{Name: "KUBELET_REGISTRAR_DIRECTORY_PATH", Value: registryDir},
		{Name: "KUBELET_PLUGINS_DIRECTORY_PATH", Value: pluginsDir},
		{Name: "HEALTHCHECK_PORT", Value: strconv.Itoa(int(port))},
	}
	return w
}

func field(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

// hostPort is a Module's port in the node's network: stable, and rarely shared.
func hostPort(module *v1beta1.Module) int32 {
	sum := sha256.Sum256([]byte(module.Namespace + "/" + module.Name))
	return firstHostPort + int32(binary.BigEndian.Uint16(sum[:])%hostPorts)
}

// withOurs puts our variables before the user's, which win: a name may occur only once.
func withOurs(ours, users []corev1.EnvVar) []corev1.EnvVar {
	all := slices.DeleteFunc(slices.Clone(ours), func(e corev1.EnvVar) bool {
		return slices.ContainsFunc(users, func(u corev1.EnvVar) bool { return u.Name == e.Name })
	})
	return append(all, users...)
}
