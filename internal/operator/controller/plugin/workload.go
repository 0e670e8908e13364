// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	// RoleDevicePlugin is the value of the role label on everything made for a device plugin.
	RoleDevicePlugin = "device-plugin"

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
		role: RoleDevicePlugin, main: &p.Container, init: p.InitContainer,
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
