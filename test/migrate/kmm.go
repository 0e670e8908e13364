// SPDX-License-Identifier: Apache-2.0

// Package migrate proves that Drover takes over a cluster from Kernel Module Management (KMM), and
// gives it back. KMM's manager does not run here: its leftovers are made as it leaves them.
package migrate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Prefix begins KMM's labels and finalizers.
const Prefix = "kmm.node.kubernetes.io/"

// Entry is what KMM writes into a NodeModulesConfig for a Module on a node, as the API server
// stores it. It compares the config of spec and status as a whole, and reloads what differs.
//
//	field                          from (internal/controllers/module_reconciler.go, enableModuleOnNode, and
//	                               internal/module/kernelmapper.go, of July 2026)
//	config.kernelVersion           the node's kernel, without a "+" at its end
//	config.containerImage          of the first mapping that matches, variables substituted; what no tag may have is "_" there
//	config.imagePullPolicy         as the Module says it, and "" if it does not: the field is never left out
//	config.insecurePull            either flag of registryTLS
//	config.inTreeModulesToRemove   the list, or the deprecated single field as a list
//	config.modprobe                as the Module has it
//	serviceAccountName             the module loader's, or "default" (internal/nmc/helper.go)
func Entry(m *v1beta1.Module, kernel string) map[string]any {
	c := &m.Spec.ModuleLoader.Container
	kernel = strings.TrimSuffix(kernel, "+")
	config := map[string]any{
		"kernelVersion":   kernel,
		"containerImage":  strings.ReplaceAll(c.KernelMappings[0].ContainerImage, "${KERNEL_FULL_VERSION}", strings.ReplaceAll(kernel, "+", "_")),
		"imagePullPolicy": string(c.ImagePullPolicy),
		"insecurePull":    c.RegistryTLS.Insecure || c.RegistryTLS.InsecureSkipTLSVerify,
		"modprobe":        map[string]any{"moduleName": c.Modprobe.ModuleName, "dirName": "/opt"},
	}
	inTree := c.InTreeModulesToRemove
	if len(inTree) == 0 && c.InTreeModuleToRemove != "" {
		inTree = []string{c.InTreeModuleToRemove}
	}
	if len(inTree) > 0 {
		list := make([]any, len(inTree))
		for i, name := range inTree {
			list[i] = name
		}
		config["inTreeModulesToRemove"] = list
	}
	return map[string]any{
		"name": m.Name, "namespace": m.Namespace, "serviceAccountName": account(m), "config": config,
	}
}

func account(m *v1beta1.Module) string {
	if name := m.Spec.ModuleLoader.ServiceAccountName; name != "" {
		return name
	}
	return "default"
}

// Image is the one that a Module has on a kernel.
func Image(m *v1beta1.Module, kernel string) string {
	config, _ := Entry(m, kernel)["config"].(map[string]any)
	reference, _ := config["containerImage"].(string)
	return reference
}

// NodeLabels are what KMM puts on a node where everything of a Module is ready.
func NodeLabels(m *v1beta1.Module) map[string]string {
	labels := map[string]string{v1beta1.ReadyLabel(m.Namespace, m.Name): ""}
	if m.Spec.DevicePlugin != nil {
		labels[v1beta1.DevicePluginReadyLabel(m.Namespace, m.Name)] = ""
		labels[TargetLabel(m)] = ""
	}
	if m.Spec.DRA != nil {
		labels[v1beta1.DRAReadyLabel(m.Namespace, m.Name)] = ""
	}
	return labels
}

// TargetLabel is on nodes where the pods of a Module's device plugin belong.
func TargetLabel(m *v1beta1.Module) string {
	return Prefix + m.Namespace + "." + m.Name + ".device-plugin-target"
}

// Differences are the fields of KMM's in which an entry differs from what it would write. Fields
// that KMM does not know are no difference: its types drop them.
func Differences(want, got map[string]any, path string) []string {
	var found []string
	for key, value := range want {
		if nested, ok := value.(map[string]any); ok {
			other, _ := got[key].(map[string]any)
			found = append(found, Differences(nested, other, path+key+".")...)
		} else if !equal(value, got[key]) {
			found = append(found, path+key)
		}
	}
	// What KMM would leave out.
	for _, key := range []string{"inTreeModulesToRemove", "inTreeModuleToRemove", "version", "tolerations", "imageRepoSecret",
		"args", "rawArgs",
		"parameters", "firmwarePath", "modulesLoadingOrder"} {
		if _, wanted := want[key]; !wanted && got[key] != nil {
			found = append(found, path+key)
		}
	}
	return found
}

func equal(a, b any) bool {
	list, ok := a.([]any)
	if !ok {
		return a == b
	}
	other, ok := b.([]any)
	if !ok || len(list) != len(other) {
		return false
	}
	for i := range list {
		if list[i] != other[i] {
			return false
		}
	}
	return true
}

// Plugin is the pod template of a DaemonSet that KMM makes for a device plugin or a DRA driver.
func Plugin(m *v1beta1.Module, role string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{}
	t.Labels = map[string]string{v1beta1.ModuleNameLabel: m.Name, v1beta1.RoleLabel: role}
	t.Finalizers = []string{Prefix + "node-labeler"}
	privileged := true
	container := corev1.Container{SecurityContext: &corev1.SecurityContext{Privileged: &privileged}}
	t.Spec.PriorityClassName = "system-node-critical"
	t.Spec.NodeSelector = map[string]string{v1beta1.ReadyLabel(m.Namespace, m.Name): ""}
	directory := corev1.HostPathDirectory
	mount := func(name, path string) {
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &directory},
		}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
	}
	if role == v1beta1.RoleDevicePlugin {
		container.Name, container.Image = "device-plugin", m.Spec.DevicePlugin.Container.Image
		t.Spec.NodeSelector[TargetLabel(m)] = ""
		mount("kubelet-device-plugins", "/var/lib/kubelet/device-plugins")
	} else {
		container.Name, container.Image = "dra", m.Spec.DRA.Container.Image
		t.Spec.HostNetwork = true
		container.Env = driverEnv()
		mount("plugins", "/var/lib/kubelet/plugins/")
		mount("plugins-registry", "/var/lib/kubelet/plugins_registry/")
		mount("cdi", "/var/run/cdi")
	}
	t.Spec.Containers = []corev1.Container{container}
	return t
}

// driverEnv is what KMM tells a DRA driver (internal/controllers/dra_reconciler.go).
func driverEnv() []corev1.EnvVar {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return []corev1.EnvVar{
		field("NODE_NAME", "spec.nodeName"), field("POD_UID", "metadata.uid"),
		{Name: "CDI_ROOT", Value: "/var/run/cdi"},
		{Name: "KUBELET_REGISTRAR_DIRECTORY_PATH", Value: "/var/lib/kubelet/plugins_registry/"},
		{Name: "KUBELET_PLUGINS_DIRECTORY_PATH", Value: "/var/lib/kubelet/plugins/"},
		{Name: "HEALTHCHECK_PORT", Value: "51515"},
	}
}
