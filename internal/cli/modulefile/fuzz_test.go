// SPDX-License-Identifier: Apache-2.0

package modulefile_test

import (
	"os"
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/cli/modulefile"
)

// FuzzRead: a file has Modules, or an error; what follows one does not change it.
func FuzzRead(f *testing.F) {
	sample, err := os.ReadFile("../../../config/samples/module_sample.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(sample))
	f.Add("---\n---\nkind: Module\n")
	f.Add("apiVersion: kmm.sigs.x-k8s.io/v1beta1\nkind: Module\nmetadata: {name: a}\nspec: {nothing: 1}\n")
	f.Add("a: &a [*a]\n")
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, text string) {
		found, err := modulefile.Read("-", strings.NewReader(text))
		if (len(found) == 0) == (err == nil) {
			t.Fatalf("%d Modules, %v", len(found), err)
		}
		for _, m := range found {
			if m == nil || m.Kind != "Module" {
				t.Errorf("Module %+v", m)
			}
		}
		if err != nil || strings.TrimRight(text, "\n") == text {
			return
		}
		more, err := modulefile.Read("-", strings.NewReader(text+"---\nkind: Other\n"))
		if err != nil || len(more) != len(found) {
			t.Errorf("with another object: %d Modules instead of %d, %v", len(more), len(found), err)
		}
	})
}
