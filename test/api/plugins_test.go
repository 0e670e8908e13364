// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func pluginCases() map[string]moduleCase {
	image := v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}
	dra := func(change func(*v1beta1.DRASpec)) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) {
			m.Spec.DRA = &v1beta1.DRASpec{Container: image, DriverName: "nic.example.com"}
			change(m.Spec.DRA)
		}
	}
	return map[string]moduleCase{
		"case 12: dra and devicePlugin": {
			given: func(m *v1beta1.Module) {
				dra(func(*v1beta1.DRASpec) {})(m)
				m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: image}
			},
			then: []string{"spec", "mutually exclusive"},
		},
		"dra": {given: dra(func(d *v1beta1.DRASpec) { d.DeviceClasses = []v1beta1.DeviceClassSpec{{Name: "a.example.com"}} })},
		"case 14: no driver name": {
			given: dra(func(d *v1beta1.DRASpec) { d.DriverName = "" }), then: []string{"spec.dra.driverName"},
		},
		"case 14: invalid driver name": {
			given: dra(func(d *v1beta1.DRASpec) { d.DriverName = "INVALID_NAME!" }), then: []string{"spec.dra.driverName"},
		},
		"case 14: invalid device class": {
			given: dra(func(d *v1beta1.DRASpec) { d.DeviceClasses = []v1beta1.DeviceClassSpec{{Name: "Bad_Name"}} }),
			then:  []string{"spec.dra.deviceClasses[0].name"},
		},
		"case 14: a device class twice": {
			given: dra(func(d *v1beta1.DRASpec) { d.DeviceClasses = []v1beta1.DeviceClassSpec{{Name: "a"}, {Name: "a"}} }),
			then:  []string{"spec.dra.deviceClasses[1]", "Duplicate"},
		},
		"a plugin volume with our name": {
			given: func(m *v1beta1.Module) {
				m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: image,
					Volumes: []corev1.Volume{{Name: "x"}, {Name: "kubelet-device-plugins"}}}
			},
			then: []string{"spec.devicePlugin.volumes[1].name"},
		},
		"a driver volume with our name": {
			given: dra(func(d *v1beta1.DRASpec) { d.Volumes = []corev1.Volume{{Name: "x"}, {Name: "kubelet-plugins"}} }),
			then:  []string{"spec.dra.volumes[1].name"},
		},
		"a driver mount in place of ours": {
			given: dra(func(d *v1beta1.DRASpec) {
				d.Volumes = []corev1.Volume{{Name: "x"}}
				d.Container.VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/var/run/cdi"}}
			}),
			then: []string{"spec.dra.container.volumeMounts[0].mountPath"},
		},
		"a plugin mount in place of ours": {
			given: func(m *v1beta1.Module) {
				m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: image, Volumes: []corev1.Volume{{Name: "x"}}}
				m.Spec.DevicePlugin.Container.VolumeMounts = []corev1.VolumeMount{
					{Name: "x", MountPath: "/x"}, {Name: "x", MountPath: "/var/lib/kubelet/device-plugins"},
				}
			},
			then: []string{"spec.devicePlugin.container.volumeMounts[1].mountPath", "/var/lib/kubelet/device-plugins/"},
		},
		"host paths": {given: hostPaths("/dev", "/sys/class", "/var/lib/nic", "/opt/x", "/run/nic.sock")},
		"a host path elsewhere": {
			given: hostPaths("/dev", "/etc"), then: []string{"spec.devicePlugin.volumes[1].hostPath.path", "/dev, /sys, /var, /opt, /run"},
		},
		"a host path beside":      {given: hostPaths("/variable"), then: []string{"spec.devicePlugin.volumes[0].hostPath.path"}},
		"a host path that climbs": {given: hostPaths("/dev/../etc"), then: []string{"spec.devicePlugin.volumes[0].hostPath.path"}},
		"the host's root":         {given: hostPaths("/"), then: []string{"spec.devicePlugin.volumes[0].hostPath.path"}},
		"a plugin volume twice": {
			given: func(m *v1beta1.Module) {
				m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: image, Volumes: []corev1.Volume{{Name: "x"}, {Name: "x"}}}
			},
			then: []string{"spec.devicePlugin.volumes[0].name", "unique"},
		},
		"a plugin": {
			given: func(m *v1beta1.Module) {
				m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{
					Container: image, AutomountServiceAccountToken: ptr.To(false), Volumes: []corev1.Volume{{Name: "x"}},
				}
			},
		},
	}
}

// hostPaths gives the device plugin a volume for each.
func hostPaths(paths ...string) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
		for i, path := range paths {
			m.Spec.DevicePlugin.Volumes = append(m.Spec.DevicePlugin.Volumes, corev1.Volume{
				Name: string(rune('a' + i)), VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
			})
		}
	}
}
