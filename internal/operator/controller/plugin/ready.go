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
