// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/hollow"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	selector = "drover.dev/skew"
	registry = "registry.example.com/"
	// moduleParams are the parameters that modules of images have.
	moduleParams = "debug,mode"
	// hosts is the node whose host has loaded what a Module needs, in another build.
	hosts = 0
)

// The Modules of a direction, by what is special about them.
const (
	params    = "params"
	firmware  = "firmware"
	intree    = "intree"
	versioned = "versioned"
	plugin    = "plugin"
	late      = "late"   // its image comes later than the Module
	lacking   = "lacks"  // names a parameter that the module does not have
	sharing   = "shares" // needs a module that a node has as another build
)

// special is what makes each Module special; host and needed are further kernel modules.
var special = map[string]func(m *v1beta1.Module, host, needed string){
	params: func(m *v1beta1.Module, _, _ string) {
		m.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"debug=1", "mode=fast"}
	},
	firmware: func(m *v1beta1.Module, _, _ string) {
		m.Spec.ModuleLoader.Container.Modprobe.FirmwarePath = "/firmware"
		m.Spec.DeletionTimeout = &metav1.Duration{Duration: 20 * time.Minute}
	},
	intree: func(m *v1beta1.Module, host, _ string) {
		m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{host}
	},
	versioned: func(m *v1beta1.Module, _, _ string) { m.Spec.ModuleLoader.Container.Version = "1" },
	plugin: func(m *v1beta1.Module, _, _ string) {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: registry + "skew/plugin:1"}}
	},
	late: func(*v1beta1.Module, string, string) {},
	lacking: func(m *v1beta1.Module, _, _ string) {
		m.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"debgu=1"}
	},
	sharing: func(m *v1beta1.Module, _, needed string) {
		p := &m.Spec.ModuleLoader.Container.Modprobe
		p.ModulesLoadingOrder = []string{p.ModuleName, needed}
	},
}

// names of all Modules, and of those that no scene changes between their load and their end.
var (
	names  = []string{params, firmware, intree, versioned, plugin, late, lacking, sharing}
	steady = []string{plugin, late}
)

func (d *direction) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: d.namespace, Name: name}
}

// kernelName is the kernel module of a Module.
func (d *direction) kernelName(name string) string {
	return strings.ReplaceAll(d.namespace, "-", "_") + "_" + name
}

// image is spec's, of a version.
func (d *direction) image(name, version string) string {
	repository := "skew/"
	if name == late {
		repository = "skew-late/"
	}
	return registry + repository + d.namespace + "/" + name + ":" + version + "-${KERNEL_FULL_VERSION}"
}

// imageFor is the image after substitution.
func (d *direction) imageFor(name, version, kernel string) string {
	return strings.ReplaceAll(d.image(name, version), "${KERNEL_FULL_VERSION}", strings.ReplaceAll(kernel, "+", "_"))
}

func (d *direction) object(name string) *v1beta1.Module {
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: name}}
	m.Spec.Selector = map[string]string{selector: "true"}
	m.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{}
	c := &m.Spec.ModuleLoader.Container
	c.Modprobe.ModuleName = d.kernelName(name)
	c.KernelMappings = []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: d.image(name, "1")}}
	special[name](m, d.kernelName("host"), d.kernelName("needed"))
	return m
}

// holds says which version of a Module's kernel module a kernel holds; "" is none.
func (d *direction) holds(n fleet.NodeTruth, name string) string {
	kernelName := d.kernelName(name)
	i := slices.IndexFunc(n.Loaded, func(m fleet.LoadedModule) bool { return m.Name == kernelName })
	if i < 0 {
		return ""
	}
	for _, v := range []string{"1", "2"} {
		if n.Loaded[i].BuildID == hollow.BuildID(d.imageFor(name, v, n.Kernel), n.Kernel, kernelName) {
			return v
		}
	}
	return fmt.Sprintf("unknown build %s", n.Loaded[i].BuildID)
}
