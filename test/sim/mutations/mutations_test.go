// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// TestMutationsFit the sources as they are: what changes a line here changes its mutation.
func TestMutationsFit(t *testing.T) {
	for _, m := range mutations {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		if n := strings.Count(string(text), m.Old); n != 1 {
			t.Errorf("%s: %s has %d times %q", m.Name, m.File, n, m.Old)
		}
	}
}

func TestMutationsAreToldApart(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutations {
		if names[m.Name] {
			t.Errorf("%s: the name is taken", m.Name)
		}
		names[m.Name] = true
		if m.Name == "" || m.Why == "" || m.Old == m.New || m.Within < 1 || !strings.HasPrefix(m.File, "internal/") {
			t.Errorf("%s: not a whole row: %+v", m.Name, m)
		}
	}
}
