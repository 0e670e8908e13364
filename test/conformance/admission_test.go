// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// admission are the cases about what the API server admits. The operator is not asked.
var admission = map[string]func(*testing.T){
	"1_regexp_and_literal": refused("mutually exclusive", func(m *v1beta1.Module) { mapping(m).Literal = "6.1.0" }),
	"2_neither":            refused("exactly one of regexp and literal", func(m *v1beta1.Module) { mapping(m).Regexp = "" }),
	"3_invalid_regexp":     refused("missing closing )", func(m *v1beta1.Module) { mapping(m).Regexp = invalid() }),

	"5_in_tree_twice_on_the_container": refused("mutually exclusive", func(m *v1beta1.Module) {
		container(m).InTreeModulesToRemove, container(m).InTreeModuleToRemove = []string{"a"}, "b"
	}),
	"5_in_tree_twice_in_a_mapping": refused("mutually exclusive", func(m *v1beta1.Module) {
		mapping(m).InTreeModulesToRemove, mapping(m).InTreeModuleToRemove = []string{"a"}, "b"
	}),
	"5_in_tree_list_and_the_mappings_old_field": refused("cannot be mixed", func(m *v1beta1.Module) {
		container(m).InTreeModulesToRemove, mapping(m).InTreeModuleToRemove = []string{"a"}, "b"
	}),
	"5_in_tree_old_field_and_the_mappings_list": refused("cannot be mixed", func(m *v1beta1.Module) {
		container(m).InTreeModuleToRemove, mapping(m).InTreeModulesToRemove = "a", []string{"b"}
	}),

	"6_neither_name_nor_raw_args": refused("must be set", func(m *v1beta1.Module) { modprobeOf(m).ModuleName = "" }),
	"6_raw_args_without_unload": refused("rawArgs with both load and unload", func(m *v1beta1.Module) {
		modprobeOf(m).ModuleName, modprobeOf(m).RawArgs = "", &v1beta1.ModprobeArgs{Load: []string{"x"}}
	}),
	"6_raw_args_without_load": refused("rawArgs with both load and unload", func(m *v1beta1.Module) {
		modprobeOf(m).ModuleName, modprobeOf(m).RawArgs = "", &v1beta1.ModprobeArgs{Unload: []string{"x"}}
	}),
	"6_raw_args_and_name": refused("mutually exclusive", func(m *v1beta1.Module) {
		modprobeOf(m).RawArgs = &v1beta1.ModprobeArgs{Load: []string{"x"}, Unload: []string{"x"}}
	}),
	"6_raw_args": admitted(func(m *v1beta1.Module) {
		modprobeOf(m).ModuleName, modprobeOf(m).RawArgs = "", &v1beta1.ModprobeArgs{Load: []string{"x"}, Unload: []string{"x"}}
	}),

	"7_order_of_one":        refused("at least two", func(m *v1beta1.Module) { modprobeOf(m).ModulesLoadingOrder = []string{"nic"} }),
	"7_order_without_name":  refused("first being moduleName", order("", "nic", "dep")),
	"7_order_begins_with_x": refused("first being moduleName", order("nic", "x", "nic")),
	"7_order_repeats":       refused("must not repeat", order("nic", "nic", "dep", "dep")),
	"7_order":               admitted(order("nic", "nic", "dep")),

	"10_no_module_loader": admitted(func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil }),

	"12_dra_and_device_plugin": refused("mutually exclusive", func(m *v1beta1.Module) {
		m.Spec.DRA = driver("dra.example.com")
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
	}),

	"13_dra_on_this_server":  admitted(func(m *v1beta1.Module) { m.Spec.DRA = driver("dra.example.com") }),
	"14_no_driver_name":      refused("spec.dra.driverName", func(m *v1beta1.Module) { m.Spec.DRA = driver("") }),
	"14_invalid_driver_name": refused("spec.dra.driverName", func(m *v1beta1.Module) { m.Spec.DRA = driver("INVALID_NAME!") }),
	"14_device_class_twice": refused("spec.dra.deviceClasses[1]",
		func(m *v1beta1.Module) { m.Spec.DRA = driver("dra.example.com", "a", "a") }),
	"14_invalid_device_class_name": refused("spec.dra.deviceClasses[0].name",
		func(m *v1beta1.Module) { m.Spec.DRA = driver("dra.example.com", "Not_A_Name") }),
	"14_two_device_classes": admitted(func(m *v1beta1.Module) { m.Spec.DRA = driver("dra.example.com", "a", "b") }),

	"17_kernel_of_one_word": preflight("test", false),
	"17_whole_kernel":       preflight("6.0.15-300.fc37.x86_64", true),
}

// preflight offers a PreflightValidation for a kernel in both versions.
func preflight(kernel string, fine bool) func(*testing.T) {
	return func(t *testing.T) {
		for _, version := range []string{"v1beta1", "v1beta2"} {
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "kmm.sigs.x-k8s.io/" + version, "kind": "PreflightValidation",
				"metadata": map[string]any{"name": "conformance"}, "spec": map[string]any{"kernelVersion": kernel},
			}}
			if err := shared.Admin.Create(t.Context(), object, client.DryRunAll); (err == nil) != fine {
				t.Errorf("the answer to kernel %s in %s is %v", kernel, version, err)
			}
		}
	}
}

// invalid is no regular expression, unless it was broken on purpose to show that a test can fail.
func invalid() string {
	if os.Getenv("BREAK") == "regexp" {
		return ".+"
	}
	return "("
}

func container(m *v1beta1.Module) *v1beta1.ModuleLoaderContainerSpec {
	return &m.Spec.ModuleLoader.Container
}

func mapping(m *v1beta1.Module) *v1beta1.KernelMapping { return &container(m).KernelMappings[0] }

func modprobeOf(m *v1beta1.Module) *v1beta1.ModprobeSpec { return &container(m).Modprobe }

func order(name string, modules ...string) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) { modprobeOf(m).ModuleName, modprobeOf(m).ModulesLoadingOrder = name, modules }
}

func driver(name string, classes ...string) *v1beta1.DRASpec {
	d := &v1beta1.DRASpec{DriverName: name, Container: v1beta1.WorkloadContainer{Image: "example.com/driver:1"}}
	for _, class := range classes {
		d.DeviceClasses = append(d.DeviceClasses, v1beta1.DeviceClassSpec{Name: class})
	}
	return d
}

// offered is a Module that is admitted, and that no node is selected for.
func offered(namespace string) *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"example.com/no-such": "node"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "example.com/nic:1"}},
			}},
		},
	}
}

// refused holds for a new Module and for one that is changed.
func refused(why string, change func(*v1beta1.Module)) func(*testing.T) {
	return offer(change, func(t *testing.T, verb string, err error) {
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
			t.Errorf("the answer to %s is %v; it should be a refusal with %q", verb, err, why)
		}
	})
}

func admitted(change func(*v1beta1.Module)) func(*testing.T) {
	return offer(change, func(t *testing.T, verb string, err error) {
		if err != nil {
			t.Errorf("the answer to %s is %v", verb, err)
		}
	})
}

func offer(change func(*v1beta1.Module), check func(t *testing.T, verb string, err error)) func(*testing.T) {
	return func(t *testing.T) {
		c := given(t)
		m := offered(c.key.Namespace)
		change(m)
		check(t, "create", shared.Admin.Create(t.Context(), m, client.DryRunAll))
		m = offered(c.key.Namespace)
		c.must(shared.Admin.Create(t.Context(), m.DeepCopy()))
		c.key.Name = m.Name
		c.eventually("the update is answered", func(ctx context.Context) error {
			m, err := c.read(ctx)
			if err != nil {
				return err
			}
			change(m)
			err = shared.Admin.Update(ctx, m, client.DryRunAll)
			if apierrors.IsConflict(err) {
				return err // the operator has just put its finalizer on it
			}
			check(t, "update", err)
			return nil
		})
	}
}
