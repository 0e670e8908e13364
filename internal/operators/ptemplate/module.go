// SPDX-License-Identifier: Apache-2.0

package ptemplate

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// KernelModule is the kernel module's name.
const KernelModule = "ptemplate_char_dev"

// module loads the kernel module with the Ptemplate's parameters, and runs the device plugin.
func module(p *v1alpha1.Ptemplate) *v1beta1.Module {
	s := settingsOf(p)
	return kit.NewModule(p.Name).
		Labels(map[string]string{nameLabel: "ptemplate", instanceLabel: p.Name, managedByLabel: Name}).
		Selector(s.selector).
		ImageRepoSecret(s.secret).
		KernelModule(KernelModule).
		Parameter("max_dev", strconv.Itoa(int(s.maxDev))).
		Parameter("default_msg", s.message).
		Mapping(kit.Regexp(`^.+$`), s.driver).
		DevicePlugin(s.plugin, confined).
		Build()
}

// confined lets the device plugin list the host's devices and describe them to the container
// runtime (CDI). It is root, because the kubelet's socket folder is root's, without further
// privileges. Variables say what it offers: images of other device plugins ignore them.
func confined(plugin *v1beta1.DevicePluginSpec) {
	plugin.Volumes = []corev1.Volume{
		hostPath("dev", "/dev", corev1.HostPathDirectory),
		hostPath("cdi", "/var/run/cdi", corev1.HostPathDirectoryOrCreate),
	}
	plugin.Container.VolumeMounts = []corev1.VolumeMount{
		{Name: "dev", MountPath: "/host/dev", ReadOnly: true},
		{Name: "cdi", MountPath: "/var/run/cdi"},
	}
	plugin.Container.Env = []corev1.EnvVar{
		{Name: "RESOURCE_NAME", Value: string(Resource)},
		{Name: "DEVICE_GLOB", Value: "/dev/ptemplate-*"},
		{Name: "DEVICE_PERMISSIONS", Value: "rw"},
		{Name: "HOST_ROOT", Value: "/host"},
		{Name: "CDI_ROOT", Value: "/var/run/cdi"},
	}
	plugin.Container.SecurityContext = &corev1.SecurityContext{
		RunAsUser:                ptr.To[int64](0),
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		ReadOnlyRootFilesystem:   ptr.To(true),
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func hostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}
