// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// ModuleBuilder builds a Module. What it does not set has Drover's defaults.
type ModuleBuilder struct{ module *v1beta1.Module }

// NewModule begins a Module. Its namespace will be that of the object whose child it is.
func NewModule(name string) *ModuleBuilder {
	return &ModuleBuilder{module: &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1beta1.ModuleSpec{Selector: map[string]string{}},
	}}
}

// Selector chooses nodes by labels. Without one, every Linux node is chosen.
func (b *ModuleBuilder) Selector(labels map[string]string) *ModuleBuilder {
	b.module.Spec.Selector = map[string]string{}
	maps.Copy(b.module.Spec.Selector, labels)
	return b
}

// Labels are put on the Module.
func (b *ModuleBuilder) Labels(labels map[string]string) *ModuleBuilder {
	b.module.Labels = labels
	return b
}

// Tolerations apply to the choice of nodes and to all of the Module's pods.
func (b *ModuleBuilder) Tolerations(tolerations ...corev1.Toleration) *ModuleBuilder {
	b.module.Spec.Tolerations = tolerations
	return b
}

// ServiceAccount whose pull secrets are used for the kernel module's image.
func (b *ModuleBuilder) ServiceAccount(name string) *ModuleBuilder {
	b.loader().ServiceAccountName = name
	return b
}

// KernelModule is the kernel module to load, as modprobe knows it.
func (b *ModuleBuilder) KernelModule(name string) *ModuleBuilder {
	b.container().Modprobe.ModuleName = name
	return b
}

// Parameter adds a parameter of the kernel module.
func (b *ModuleBuilder) Parameter(name, value string) *ModuleBuilder {
	modprobe := &b.container().Modprobe
	modprobe.Parameters = append(modprobe.Parameters, name+"="+value)
	return b
}

// DirName is the image's folder with lib/modules/<kernel>; /opt without it.
func (b *ModuleBuilder) DirName(path string) *ModuleBuilder {
	b.container().Modprobe.DirName = path
	return b
}

// FirmwarePath is the folder of firmware in the image.
func (b *ModuleBuilder) FirmwarePath(path string) *ModuleBuilder {
	b.container().Modprobe.FirmwarePath = path
	return b
}

// LoadOrder lists kernel modules whose files do not say what they depend on, from the topmost,
// which is KernelModule's, to the deepest.
func (b *ModuleBuilder) LoadOrder(modules ...string) *ModuleBuilder {
	b.container().Modprobe.ModulesLoadingOrder = modules
	return b
}

// RemoveInTree unloads these modules of the kernel before the kernel module is loaded.
func (b *ModuleBuilder) RemoveInTree(modules ...string) *ModuleBuilder {
	b.container().InTreeModulesToRemove = modules
	return b
}

// BlacklistInTree keeps the host from loading RemoveInTree's modules by itself.
func (b *ModuleBuilder) BlacklistInTree() *ModuleBuilder {
	b.container().BlacklistInTree = true
	return b
}

// ReadyWhen are checks that must all pass before the kernel module counts as ready on a node.
func (b *ModuleBuilder) ReadyWhen(checks ...v1beta1.ReadyCheck) *ModuleBuilder {
	b.container().ReadyWhen = checks
	return b
}

// Version of the kernel module, for an upgrade in the order of nodes' labels.
func (b *ModuleBuilder) Version(version string) *ModuleBuilder {
	b.container().Version = version
	return b
}

// Kernels chooses kernels by their version; see [Regexp] and [Literal].
type Kernels struct{ regexp, literal string }

// Regexp chooses kernels by a regular expression (RE2), which is not anchored.
func Regexp(expression string) Kernels { return Kernels{regexp: expression} }

// Literal chooses one kernel by its full version, as uname -r prints it.
func Literal(version string) Kernels { return Kernels{literal: version} }

// Mapping adds the image with the kernel module for some kernels. The first one that matches
// counts. The image's reference may contain ${KERNEL_FULL_VERSION} and Drover's other variables.
func (b *ModuleBuilder) Mapping(kernels Kernels, image string) *ModuleBuilder {
	container := b.container()
	container.KernelMappings = append(container.KernelMappings, v1beta1.KernelMapping{
		Regexp: kernels.regexp, Literal: kernels.literal, ContainerImage: image,
	})
	return b
}

// ImagePullPolicy of the kernel module's image.
func (b *ModuleBuilder) ImagePullPolicy(policy corev1.PullPolicy) *ModuleBuilder {
	b.container().ImagePullPolicy = policy
	return b
}

// ImageRepoSecret names the Secret for pulling images; empty: none.
func (b *ModuleBuilder) ImageRepoSecret(name string) *ModuleBuilder {
	b.module.Spec.ImageRepoSecret = nil
	if name != "" {
		b.module.Spec.ImageRepoSecret = &corev1.LocalObjectReference{Name: name}
	}
	return b
}

// DevicePlugin runs an image as a device plugin where the kernel module is ready. The functions
// change its further settings.
func (b *ModuleBuilder) DevicePlugin(image string, change ...func(*v1beta1.DevicePluginSpec)) *ModuleBuilder {
	plugin := &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: image}}
	for _, f := range change {
		f(plugin)
	}
	b.module.Spec.DevicePlugin = plugin
	return b
}

// Build returns a copy: the builder may be used further.
func (b *ModuleBuilder) Build() *v1beta1.Module { return b.module.DeepCopy() }

func (b *ModuleBuilder) loader() *v1beta1.ModuleLoaderSpec {
	if b.module.Spec.ModuleLoader == nil {
		b.module.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{}
	}
	return b.module.Spec.ModuleLoader
}

func (b *ModuleBuilder) container() *v1beta1.ModuleLoaderContainerSpec { return &b.loader().Container }

// ModuleReady returns nil if a Module has nodes and is ready on all of them, or why not, by
// [Waiting]. It reads the Ready condition, or the numbers that any Kernel Module Management sets.
func ModuleReady(m *v1beta1.Module) error {
	loader := m.Status.ModuleLoader
	numbers := fmt.Sprintf("Module %s is ready on %d of %d nodes", m.Name, loader.AvailableNumber, loader.DesiredNumber)
	if plugin := m.Status.DevicePlugin; !pluginReady(m) {
		numbers += fmt.Sprintf(", and its device plugin on %d of %d", plugin.AvailableNumber, plugin.DesiredNumber)
	}
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if ready == nil {
		if loader.DesiredNumber > 0 && loader.AvailableNumber >= loader.DesiredNumber && pluginReady(m) {
			return nil
		}
		return Waiting(ReasonProgressing, "%s", numbers)
	}
	switch {
	case m.Status.ObservedGeneration != m.Generation:
		return Waiting(ReasonProgressing, "Module %s has changed, and its operator has not looked at it yet", m.Name)
	case ready.Status == metav1.ConditionTrue && loader.DesiredNumber > 0:
		return nil
	case ready.Status == metav1.ConditionTrue:
		return Waiting(ReasonProgressing, "Module %s selects no nodes", m.Name)
	}
	return Waiting(ready.Reason, "%s: %s", numbers, ready.Message)
}

// pluginReady tells whether the device plugin, if there is one, is ready on all nodes.
func pluginReady(m *v1beta1.Module) bool {
	return m.Spec.DevicePlugin == nil || m.Status.DevicePlugin.AvailableNumber >= m.Status.DevicePlugin.DesiredNumber
}
