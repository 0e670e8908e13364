// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestSync: a file's content is synced before it gets its name, and the name before Replace
// returns. A sync that fails ends it.
func TestSync(t *testing.T) {
	dir := t.TempDir()
	var synced []string
	watch := func(f *os.File) error {
		in, err := os.ReadFile(filepath.Join(dir, "f"))
		synced = append(synced, filepath.Base(f.Name())+" beside "+string(in))
		return err
	}
	for _, content := range []string{"old", "new"} {
		if err := Replace(dir, "f", []byte(content), 0o600, NoSync); err != nil {
			t.Fatal(err)
		}
		if content == "old" {
			if err := Replace(dir, "f", []byte("synced"), 0o600, watch); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{".f.new beside old", ". beside synced"}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	for at := range 2 {
		fails := func(*os.File) error {
			if at--; at < 0 {
				return syscall.EIO
			}
			return nil
		}
		if err := Replace(dir, "f", []byte("failed"), 0o600, fails); !errors.Is(err, syscall.EIO) {
			t.Errorf("a sync that fails: %v", err)
		}
	}
	if err := Sync(nil).Dir(dir); err != nil {
		t.Error(err)
	}
	if err := Sync(nil).Dir(filepath.Join(dir, "missing")); err == nil {
		t.Error("a directory that is not there is synced")
	}
}
