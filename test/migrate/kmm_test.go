// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestWhatDiffersFromKMM: the comparison on which the proof stands sees each difference, and no
// field of Drover's own.
func TestWhatDiffersFromKMM(t *testing.T) {
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "drivers", Name: "card"}, Spec: v1beta1.ModuleSpec{
		ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
			Modprobe: v1beta1.ModprobeSpec{ModuleName: "card"}, InTreeModuleToRemove: "old",
			KernelMappings: []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: "r/card:${KERNEL_FULL_VERSION}"}},
		}},
	}}
	if got := Image(m, "6.1.0+"); got != "r/card:6.1.0" {
		t.Errorf("image %s", got)
	}
	cases := map[string]struct {
		given func(entry, config map[string]any)
		then  []string
	}{
		"equal":            {func(_, _ map[string]any) {}, nil},
		"a field of ours":  {func(e, _ map[string]any) { e["delivery"] = map[string]any{"id": "a"} }, nil},
		"another pull":     {func(_, c map[string]any) { c["imagePullPolicy"] = "IfNotPresent" }, []string{"config.imagePullPolicy"}},
		"no pull":          {func(_, c map[string]any) { delete(c, "imagePullPolicy") }, []string{"config.imagePullPolicy"}},
		"the single field": {func(_, c map[string]any) { c["inTreeModuleToRemove"] = "old" }, []string{"config.inTreeModuleToRemove"}},
		"another list": {
			func(_, c map[string]any) { c["inTreeModulesToRemove"] = []any{"a", "b"} },
			[]string{"config.inTreeModulesToRemove"},
		},
		"no list":            {func(_, c map[string]any) { delete(c, "inTreeModulesToRemove") }, []string{"config.inTreeModulesToRemove"}},
		"another account":    {func(e, _ map[string]any) { e["serviceAccountName"] = "x" }, []string{"serviceAccountName"}},
		"parameters":         {func(_, c map[string]any) { c["modprobe"].(map[string]any)["parameters"] = []any{"a=1"} }, []string{"config.modprobe.parameters"}}, //nolint:errcheck,forcetypeassert // Entry made it
		"no config, nothing": {func(e, _ map[string]any) { e["config"] = nil }, []string{"config.kernelVersion", "config.containerImage"}},
	}
	for name, tc := range cases {
		got := Entry(m, "6.1.0")
		config, _ := got["config"].(map[string]any)
		tc.given(got, config)
		found := Differences(Entry(m, "6.1.0"), got, "")
		for _, field := range tc.then {
			if !slices.Contains(found, field) {
				t.Errorf("%s: %v lacks %s", name, found, field)
			}
		}
		if len(tc.then) < 2 && len(found) != len(tc.then) {
			t.Errorf("%s: %v", name, found)
		}
	}
}
