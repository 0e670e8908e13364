// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"unique"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// slimConfig shares the texts of a NodeModulesConfig with those of all other nodes: orders and reports repeat the Module's names, images and
// kernels on every node, once in spec and once in status.
func slimConfig(object any) (any, error) {
	config, ok := object.(*v1beta1.NodeModulesConfig)
	if !ok {
		return slim(object)
	}
	config.ManagedFields = nil
	for i := range config.Spec.Modules {
		order := &config.Spec.Modules[i]
		internItem(&order.ModuleItem)
		internConfig(&order.Config)
		share(&order.Reason)
		for _, d := range []*v1beta1.Delivery{order.Delivery, order.Next} {
			if d != nil {
				share(&d.ID)
			}
		}
	}
	for i := range config.Status.Modules {
		live := &config.Status.Modules[i]
		internItem(&live.ModuleItem)
		internConfig(&live.Config)
		share(&live.BootID)
		if o := live.Observed; o != nil {
			shareAll(&o.Delivery, &o.BuildID, &o.SrcVersion, &o.Taint)
		}
	}
	for i := range config.Status.Attempts {
		a := &config.Status.Attempts[i]
		shareAll(&a.Namespace, &a.Name, &a.Reason)
	}
	for i := range config.Status.Artifacts {
		shareAll(&config.Status.Artifacts[i].ID, &config.Status.Artifacts[i].Digest)
	}
	config.Labels = sharedLabels(config.Labels)
	// A list that was read grew by doubling.
	config.Spec.Modules, config.Status.Modules = fitted(config.Spec.Modules), fitted(config.Status.Modules)
	config.Status.Artifacts = fitted(config.Status.Artifacts)
	return config, nil
}

func sharedLabels(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
	}
	texts := make(map[string]string, len(labels))
	for key, value := range labels {
		texts[shared(key)] = shared(value)
	}
	return texts
}

// fitted is the list without room for more.
func fitted[T any](list []T) []T {
	if cap(list) == len(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

func internItem(item *v1beta1.ModuleItem) {
	shareAll(&item.Namespace, &item.Name, &item.ServiceAccountName, &item.Version)
}

func internConfig(c *v1beta1.ModuleConfig) {
	shareAll(&c.KernelVersion, &c.ContainerImage, &c.InTreeModuleToRemove, &c.Modprobe.ModuleName, &c.Modprobe.DirName, &c.Modprobe.FirmwarePath)
	for _, list := range [][]string{c.InTreeModulesToRemove, c.Modprobe.Parameters, c.Modprobe.ModulesLoadingOrder} {
		for i := range list {
			share(&list[i])
		}
	}
}

func shareAll(texts ...*string) {
	for _, text := range texts {
		share(text)
	}
}

func share(text *string) { *text = shared(*text) }

// shared is the one copy of a text. It goes when nobody holds it any more.
func shared(text string) string { return unique.Make(text).Value() }
