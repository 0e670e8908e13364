// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// FuzzRecord: a record is a delivery of its own name and of a tree that is there, or moved aside.
func FuzzRecord(f *testing.F) {
	sum := strings.Repeat("a", 64)
	f.Add([]byte(`{"id":"x","digest":"` + sum + `","kernel":"6.1","imported":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"id":"y","digest":"` + sum + `"}`))
	f.Add([]byte(`{"id":"x","digest":"../../etc"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := New(t.Context(), t.TempDir(), Options{Sync: statefile.NoSync})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(s.tree(sum), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.recordPath("x"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		held, err := s.Held()
		if err != nil {
			t.Fatal(err)
		}
		if digest, ok := held["x"]; ok && digest != sum || !manifest.ValidSum(sum) || len(held) > 1 || len(held) == 1 && !ok {
			t.Errorf("held: %q", held)
		}
		if _, err := os.Lstat(s.recordPath("x")); (err == nil) != (len(held) == 1) {
			t.Errorf("%d are held, and its record: %v", len(held), err)
		}
		if _, err := s.Open("x"); err == nil { // an empty tree has another digest
			t.Error("a tree that is not what was imported was opened")
		}
	})
}
