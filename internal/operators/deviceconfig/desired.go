// SPDX-License-Identifier: Apache-2.0

package deviceconfig

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operators/deviceconfig/nodeselector"
	"github.com/drover-project/drover/kit"
)

// Suffixes of the names of what a DeviceConfig becomes.
const (
	moduleSuffix         = "-module"
	serviceAccountSuffix = "-driver"
)

// resource is what pods request to get one of the kernel module's devices.
const (
	resource = "example.com/he-sample"
	devices  = "/dev/he_sample*"
)

// desired are a DeviceConfig's children: a Module and, unless it names the user's, a
// ServiceAccount.
func desired(d *v1alpha1.DeviceConfig) ([]client.Object, error) {
	var children []client.Object
	if d.Spec.ServiceAccountName == "" {
		children = append(children, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: d.Name + serviceAccountSuffix}})
	}
	return append(children, module(d)), nil
}

// module has prebuilt images only.
func module(d *v1alpha1.DeviceConfig) *v1beta1.Module {
	image := d.Spec.DriverImage + ":" + d.Spec.DriverVersion + "-${KERNEL_FULL_VERSION}"
	m := kit.NewModule(d.Name+moduleSuffix).
		Selector(nodeselector.Of(d)).
		ServiceAccount(cmp.Or(d.Spec.ServiceAccountName, d.Name+serviceAccountSuffix)).
		KernelModule(cmp.Or(d.Spec.ModuleName, v1alpha1.DefaultModuleName)).
		ImagePullPolicy(corev1.PullAlways).
		Mapping(kit.Regexp(cmp.Or(d.Spec.KernelRegexp, v1alpha1.DefaultKernelRegexp)), image)
	if d.Spec.DevicePluginImage != "" {
		m.DevicePlugin(d.Spec.DevicePluginImage, offer)
	}
	return m.Build()
}

// offer tells the device plugin what to offer, by variables, which another vendor's image ignores.
// The security context stays unset: upstream's Module has no such field, and runs it privileged.
func offer(plugin *v1beta1.DevicePluginSpec) {
	plugin.Container.Env = []corev1.EnvVar{
		{Name: "RESOURCE_NAME", Value: resource},
		{Name: "DEVICE_GLOB", Value: devices},
		{Name: "HOST_ROOT", Value: "/host"},
	}
	plugin.Container.VolumeMounts = []corev1.VolumeMount{
		{Name: "dev", MountPath: "/host/dev", ReadOnly: true},
		{Name: "cdi", MountPath: "/var/run/cdi"},
	}
	plugin.Volumes = []corev1.Volume{
		hostFolder("dev", "/dev", corev1.HostPathDirectory),
		hostFolder("cdi", "/var/run/cdi", corev1.HostPathDirectoryOrCreate),
	}
}

func hostFolder(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: ptr.To(kind)}}}
}

// moduleFields are written: the CustomResourceDefinition, Drover's or upstream's, must have them.
var moduleFields = []string{
	"spec.selector", "spec.moduleLoader.serviceAccountName",
	"spec.moduleLoader.container.imagePullPolicy", "spec.moduleLoader.container.modprobe.moduleName",
	"spec.moduleLoader.container.kernelMappings.regexp", "spec.moduleLoader.container.kernelMappings.containerImage",
	"spec.devicePlugin.container.image", "spec.devicePlugin.container.env", "spec.devicePlugin.container.volumeMounts",
	"spec.devicePlugin.volumes",
}
