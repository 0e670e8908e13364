// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func sysfs(path, value string) v1beta1.ReadyCheck {
	return v1beta1.ReadyCheck{Sysfs: &v1beta1.SysfsCheck{Path: path, Value: value}}
}

// readyCases are about what readyWhen may ask for. Patterns keep it from leading the agent
// elsewhere on the node.
func readyCases() map[string]moduleCase {
	const field = "spec.moduleLoader.container.readyWhen"
	command := v1beta1.ReadyCheck{Command: []string{"/probe"}}
	cases := map[string]moduleCase{}
	add := func(name string, then []string, checks ...v1beta1.ReadyCheck) {
		cases["readyWhen: "+name] = moduleCase{given: func(m *v1beta1.Module) { container(m).ReadyWhen = checks }, then: then}
	}
	add("a device node, a value, a folder", nil,
		v1beta1.ReadyCheck{DeviceNode: "/dev/snd/nic*"}, sysfs("/sys/class/nic/nic0/state", "up"), sysfs("/sys/module/nic", ""))
	add("nothing in a check", []string{field, "exactly one of deviceNode, sysfs and command"}, v1beta1.ReadyCheck{})
	add("two things in a check", []string{field, "exactly one of deviceNode, sysfs and command"},
		v1beta1.ReadyCheck{DeviceNode: "/dev/nic", Sysfs: &v1beta1.SysfsCheck{Path: "/sys/module/nic"}})
	for _, path := range []string{"/dev", "/dev/", "dev/nic", "/dev/../etc/shadow", "/dev//nic", "/dev/./nic", "/dev/a b",
		"/proc/1/root/dev/nic"} {
		add("device node "+path, []string{field + "[0].deviceNode"}, v1beta1.ReadyCheck{DeviceNode: path})
	}
	for _, path := range []string{"/sys/kernel/debug/x", "/sys/class", "/sys/class/../kernel/x", "/sys/firmware/x", "/etc/shadow"} {
		add("file "+path, []string{field + "[0].sysfs.path"}, sysfs(path, "x"))
	}
	add("nine checks", []string{field, "8"}, make([]v1beta1.ReadyCheck, 9)...)
	add("a value too long", []string{field + "[0].sysfs.value"}, sysfs("/sys/module/nic/x", strings.Repeat("x", 257)))
	add("a command without a pod to run in", []string{"runs in the pod of devicePlugin or dra"}, command)
	plugin := func(m *v1beta1.Module) {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
	}
	cases["readyWhen: a command with a device plugin"] = moduleCase{given: func(m *v1beta1.Module) {
		plugin(m)
		container(m).ReadyWhen = []v1beta1.ReadyCheck{command, {DeviceNode: "/dev/nic"}}
	}}
	cases["readyWhen: a volume of our name"] = moduleCase{given: func(m *v1beta1.Module) {
		plugin(m)
		m.Spec.DevicePlugin.Volumes = []corev1.Volume{{Name: "drover-host-dev"}}
	}, then: []string{"spec.devicePlugin.volumes[0].name"}}
	cases["readyWhen: a volume of our name with a driver"] = moduleCase{given: func(m *v1beta1.Module) {
		m.Spec.DRA = &v1beta1.DRASpec{DriverName: "nic.example.com", Container: v1beta1.WorkloadContainer{Image: "example.com/driver:1"}}
		m.Spec.DRA.Volumes = []corev1.Volume{{Name: "x"}, {Name: "drover-host-dev"}}
	}, then: []string{"spec.dra.volumes[1].name", "drover-host-dev"}}
	cases["readyWhen: two commands"] = moduleCase{given: func(m *v1beta1.Module) {
		plugin(m)
		container(m).ReadyWhen = []v1beta1.ReadyCheck{command, command}
	}, then: []string{field, "may have one command"}}
	for _, taint := range []string{"example.com/starting", "starting", "startup-taint.cluster-autoscaler.kubernetes.io/nic", ""} {
		cases["startupTaint: "+taint] = moduleCase{given: func(m *v1beta1.Module) { m.Spec.StartupTaint = taint }}
	}
	for _, taint := range []string{"node.kubernetes.io/unreachable", "kubernetes.io/x", "node-role.kubernetes.io/control-plane",
		"Example.com/x", "a b", "x/"} {
		cases["startupTaint: "+taint] = moduleCase{given: func(m *v1beta1.Module) { m.Spec.StartupTaint = taint },
			then: []string{"spec.startupTaint"}}
	}
	return cases
}
