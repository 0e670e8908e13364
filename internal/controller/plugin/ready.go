// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	// DevVolume is the host's /dev in our init container, where a Module asks for a device node; a Module's own volumes may
	// not use the name.
	DevVolume = "drover-host-dev"
	// devDir is where our init container sees the host's /dev.
	devDir = "/host/dev"
)

// waitFor is the command line of our init container: it waits for what the node's agent looks at, too, since a label can
// be older than a reboot.
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

// ofNetwork is true for what each network namespace has its own of: a pod sees its own there, not the node's.
func ofNetwork(path string) bool { return slices.Contains(strings.Split(path, "/"), "net") }

// devVolumes is the host's /dev if a container mounts it.
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

// readiness is the command of readyWhen, or nil.
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
