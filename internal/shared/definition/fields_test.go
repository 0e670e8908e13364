// SPDX-License-Identifier: Apache-2.0

package definition

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestEveryFieldOfOursIsAskedFor compares what is asked of a cluster with what the generated
// definitions have.
func TestEveryFieldOfOursIsAskedFor(t *testing.T) {
	// As many as there were when this was written: fields are only added.
	least := map[string]int{"modules": 20, "nodemodulesconfigs": 20, "preflightvalidations": 15}
	for plural, asked := range fields {
		content, err := os.ReadFile("../../../config/crd/bases/kmm.sigs.x-k8s.io_" + plural + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &crd.Object); err != nil {
			t.Fatal(err)
		}
		var have []string
		list(served(crd, versionOf(plural)), "", func(path string) bool {
			have = append(have, path)
			return slices.ContainsFunc(asked, func(a string) bool { return strings.HasPrefix(a, path+".") })
		})
		have = slices.DeleteFunc(have, func(path string) bool { return path == "apiVersion" || path == "kind" || path == "metadata" })
		if diff := cmp.Diff(slices.Sorted(slices.Values(have)), asked); diff != "" || least[plural] == 0 || len(asked) < least[plural] {
			t.Errorf("%s: fields in config/crd (-) and those asked for (+):\n%s", plural, diff)
		}
	}
}

// list visits every path of a schema, into those for which visit says so.
func list(schema map[string]any, prefix string, visit func(path string) (further bool)) {
	if items, ok := schema["items"].(map[string]any); ok {
		schema = items
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		child, ok := properties[name].(map[string]any)
		if ok && visit(prefix+name) {
			list(child, prefix+name+".", visit)
		}
	}
}

// TestAConversionWebhookIsNamed: KMM's definitions have one, which an apply of ours may leave.
func TestAConversionWebhookIsNamed(t *testing.T) {
	content, err := os.ReadFile("../../../config/crd/bases/kmm.sigs.x-k8s.io_preflightvalidations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		given map[string]any
		want  string
	}{
		"ours": {given: map[string]any{"strategy": "None"}},
		"KMM's": {
			given: map[string]any{"strategy": "Webhook", "webhook": map[string]any{"clientConfig": map[string]any{
				"service": map[string]any{"namespace": "kmm", "name": "kmm-webhook", "port": int64(443)},
			}}},
			want: "by the webhook of Service kmm/kmm-webhook,",
		},
		"by an address": {
			given: map[string]any{"strategy": "Webhook", "webhook": map[string]any{"clientConfig": map[string]any{"url": "https://a"}}},
			want:  "by a webhook,",
		},
	} {
		t.Run(name, func(t *testing.T) {
			crd := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(content, &crd.Object); err != nil {
				t.Fatal(err)
			}
			if err := unstructured.SetNestedMap(crd.Object, test.given, "spec", "conversion"); err != nil {
				t.Fatal(err)
			}
			got := Misfit(crd)
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("misfit %q, want %q in it", got, test.want)
			}
		})
	}
}
