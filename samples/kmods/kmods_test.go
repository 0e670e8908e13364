// SPDX-License-Identifier: Apache-2.0

// Package kmods_test looks at the sample kernel modules' sources, and (`make compare`) runs their
// code in user space.
package kmods_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKernelModulesNameALicenceThatTheKernelKnows(t *testing.T) {
	sources, err := filepath.Glob("*/*.c")
	if err != nil || len(sources) < 5 {
		t.Fatalf("%d sources: %v", len(sources), err)
	}
	for _, path := range sources {
		if strings.HasPrefix(path, "testdata") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"// SPDX-License-Identifier: GPL-2.0-only\n", "\nMODULE_LICENSE(\"GPL\");\n"} {
			if !strings.Contains(string(source), want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
	}
}
