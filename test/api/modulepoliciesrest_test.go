// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// saysNothing is a policy that only chooses: what it could allow is denied.
func saysNothing(*v1alpha1.ModulePolicySpec) {}

func allowWorkloads(s *v1alpha1.ModulePolicySpec) {
	s.Workloads = &v1alpha1.ModulePolicyWorkloads{Images: []string{"example.com/plugins/*"}}
}

func allowDrivers(s *v1alpha1.ModulePolicySpec) {
	allowWorkloads(s)
	s.DriverNames, s.DeviceClasses = []string{"nic.example.com"}, []string{"nic-*"}
}

// unprivileged is a plugin's container that a policy without privileged allows.
func unprivileged(change ...func(*v1beta1.WorkloadContainer)) v1beta1.WorkloadContainer {
	c := v1beta1.WorkloadContainer{Image: "example.com/plugins/nic:1", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(false)}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func devicePlugin(change ...func(*v1beta1.DevicePluginSpec)) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: unprivileged()}
		for _, f := range change {
			f(m.Spec.DevicePlugin)
		}
	}
}

func driver(change ...func(*v1beta1.DRASpec)) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		m.Spec.DRA = &v1beta1.DRASpec{Container: unprivileged(), DriverName: "nic.example.com",
			DeviceClasses: []v1beta1.DeviceClassSpec{{Name: "nic-fast"}}}
		for _, f := range change {
			f(m.Spec.DRA)
		}
	}
}

// policiesOfTheRest are about what a policy's author must allow, and what belongs to no node.
func policiesOfTheRest() map[string]policyCase {
	taint := func(key string) func(*v1beta1.Module) { return func(m *v1beta1.Module) { m.Spec.StartupTaint = key } }
	drains := func(d v1beta1.DrainPolicy) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { m.Spec.Rollout = &v1beta1.RolloutSpec{Drain: d} }
	}
	firmware := func(m *v1beta1.Module) { container(m).Modprobe.FirmwarePath = "/firmware" }
	context := func(change func(*corev1.SecurityContext)) func(*v1beta1.Module) {
		return devicePlugin(func(d *v1beta1.DevicePluginSpec) { change(d.Container.SecurityContext) })
	}
	const unprivilegedOnly = "allows no privileged pods"
	return map[string]policyCase{
		"firmware": {policy: saysNothing, good: same, bad: firmware, then: "modprobe.firmwarePath: ModulePolicy"},
		"firmware that is allowed": {policy: func(s *v1alpha1.ModulePolicySpec) { onlyNics(s); s.Firmware = v1alpha1.Allow }, good: firmware,
			bad: func(m *v1beta1.Module) { container(m).Modprobe.ModuleName = "fs" }, then: `the kernel module "fs"`},
		"a drain": {policy: saysNothing, good: drains("None"), bad: drains("Holders"), then: "spec.rollout.drain: ModulePolicy"},
		"another drain": {policy: func(s *v1alpha1.ModulePolicySpec) { s.Drain = "Holders" }, good: drains("Holders"), bad: drains("Node"),
			then: "does not allow Node"},
		"a startup taint": {policy: saysNothing, good: same, bad: taint("example.com/starting"), then: "spec.startupTaint: ModulePolicy"},
		"another startup taint": {policy: func(s *v1alpha1.ModulePolicySpec) { s.StartupTaints = []string{"a.example.com/*", "example.com/b"} },
			good: taint("a.example.com/starting"), bad: taint("example.com/bc"), then: "the taint example.com/bc"},
		"a device plugin": {policy: saysNothing, good: same, bad: devicePlugin(), then: "spec.devicePlugin: ModulePolicy"},
		"a DRA driver":    {policy: saysNothing, good: same, bad: driver(), then: "spec.dra: ModulePolicy"},
		"a plugin's image": {policy: allowWorkloads, good: devicePlugin(),
			bad: devicePlugin(func(d *v1beta1.DevicePluginSpec) { d.Container.Image = "evil.net/nic:1" }), then: "the image evil.net/nic:1"},
		"an init container's image": {policy: allowWorkloads, good: devicePlugin(), bad: devicePlugin(func(d *v1beta1.DevicePluginSpec) {
			d.InitContainer = ptr.To(unprivileged(func(c *v1beta1.WorkloadContainer) { c.Image = "evil.net/nic:2" }))
		}), then: "the image evil.net/nic:2"},
		"a plugin without a securityContext": {policy: allowWorkloads, good: devicePlugin(),
			bad: devicePlugin(func(d *v1beta1.DevicePluginSpec) { d.Container.SecurityContext = nil }), then: unprivilegedOnly},
		"a privileged plugin": {policy: allowWorkloads, good: devicePlugin(),
			bad: context(func(s *corev1.SecurityContext) { s.Privileged = ptr.To(true) }), then: unprivilegedOnly},
		"an added capability": {policy: allowWorkloads, good: devicePlugin(),
			bad: context(func(s *corev1.SecurityContext) {
				s.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
			}),
			then: unprivilegedOnly},
		"without seccomp": {policy: allowWorkloads, good: devicePlugin(), bad: context(func(s *corev1.SecurityContext) {
			s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}), then: unprivilegedOnly},
		"a hostPath": {policy: allowWorkloads, good: devicePlugin(), bad: devicePlugin(func(d *v1beta1.DevicePluginSpec) {
			d.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/x"}}}}
		}), then: unprivilegedOnly},
		"the node's network": {policy: allowDrivers, good: driver(),
			bad: driver(func(d *v1beta1.DRASpec) { d.HostNetwork = true }), then: unprivilegedOnly},
		"a privileged plugin that is allowed": {policy: func(s *v1alpha1.ModulePolicySpec) {
			allowWorkloads(s)
			s.Workloads.Privileged = v1alpha1.Allow
		}, good: devicePlugin(func(d *v1beta1.DevicePluginSpec) { d.Container.SecurityContext = nil }),
			bad: driver(), then: "spec.dra.driverName: ModulePolicy"},
		"a driver's name": {policy: allowDrivers, good: driver(),
			bad: driver(func(d *v1beta1.DRASpec) { d.DriverName = "gpu.example.com" }), then: "the driver gpu.example.com"},
		"a DeviceClass": {policy: allowDrivers, good: driver(),
			bad: driver(func(d *v1beta1.DRASpec) {
				d.DeviceClasses = append(d.DeviceClasses, v1beta1.DeviceClassSpec{Name: "gpu"})
			}),
			then: "the DeviceClass gpu"},
	}
}
