// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestGeneratedFilesAreCurrent: templates, values and the page are what hack/chart would write.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(content, string(got)); diff != "" {
			t.Errorf("%s is not current: make manifests (-want +got):\n%s", name, diff)
		}
	}
	there, err := filepath.Glob(filepath.Join(root, generatedDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if _, known := want[generatedDir+"/"+filepath.Base(path)]; !known {
			t.Errorf("%s is not generated any more: make manifests", path)
		}
	}
}
