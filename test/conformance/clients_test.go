// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestClients applies Modules as clients written in Go serialise them, unchanged and validated
// strictly, and has them loaded: with fields that have no omitempty, empty lists and objects, null,
// relative firmware paths and variables without braces.
func TestClients(t *testing.T) {
	files, err := filepath.Glob("clients/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	loads := map[string][]string{
		"gpu-operator.json": {"client_gpu"}, "loading-order.json": {"client_chain", "client_chain_core"}, "raw-args.json": {"client_raw"},
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			module := &unstructured.Unstructured{}
			if err := json.Unmarshal(content, &module.Object); err != nil {
				t.Fatal(err)
			}
			c := given(t, kernelDebian)
			selector, _, err := unstructured.NestedStringMap(module.Object, "spec", "selector")
			c.must(err)
			for label, value := range selector {
				c.patchNode(c.nodes[0], fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, value))
			}
			c.key.Name = module.GetName()
			modules := loads[filepath.Base(file)]
			c.kernelModule = modules[0]
			module.SetNamespace(c.key.Namespace)

			c.must(client.WithFieldValidation(shared.Admin, metav1.FieldValidationStrict).Create(t.Context(), module.DeepCopy()))

			c.eventually("the Module is ready", c.ready)
			for _, name := range modules {
				c.must(c.kernelsSay(t.Context(), name, map[string]tally{c.nodes[0]: once}))
			}
			if strings.Contains(string(content), "$MOD_NAMESPACE") {
				live, err := c.live(t.Context(), c.nodes[0])
				c.must(err)
				if want := registry + "/" + c.key.Namespace + "/"; !strings.HasPrefix(live.Config.ContainerImage, want) {
					t.Errorf("loaded is %s, not of %s", live.Config.ContainerImage, want)
				}
			}
			c.must(shared.Admin.Delete(t.Context(), module))
			c.eventually("the Module is gone", c.gone)
		})
	}
}
