// SPDX-License-Identifier: Apache-2.0

package statefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/drover-project/drover/internal/agent/statefile"
)

// FuzzRead: a file is read, and can be written and read again, or it is moved aside as it was.
func FuzzRead(f *testing.F) {
	for _, content := range []any{map[string]string{"a": "b"}, nil, map[string]string{}} {
		data, err := statefile.Encode(1, content)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"schema":1,"sha256":"","content":{}}`))
	f.Add([]byte(`{"schema":2}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		name := filepath.Join(dir, "f")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		into := map[string]string{}
		found, err := statefile.Read(dir, "f", 1, &into)
		if err != nil {
			untrusted := (*statefile.UntrustedError)(nil)
			aside, read := os.ReadFile(name + ".aside")
			if found || !errors.As(err, &untrusted) || untrusted.Kept != nil || read != nil || string(aside) != string(data) {
				t.Errorf("found %v, %v, aside %q (%v)", found, err, aside, read)
			}
			return
		}
		if !found {
			t.Fatal("it is not found")
		}
		if err := statefile.Write(dir, "f", 1, into, statefile.NoSync); err != nil {
			t.Fatal(err)
		}
		again := map[string]string{}
		if found, err := statefile.Read(dir, "f", 1, &again); !found || err != nil || len(again) != len(into) {
			t.Errorf("written and read: %v, %v", again, err)
		}
	})
}
