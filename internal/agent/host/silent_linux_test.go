// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestADriverThatHangsItsParameters: to read a parameter is to call the driver. A pipe without a
// writer hangs as such a driver does.
func TestADriverThatHangsItsParameters(t *testing.T) {
	root := t.TempDir()
	write(t, root, "gadget/initstate", "live\n")
	write(t, root, "gadget/parameters/a", "1\n")
	write(t, root, "gadget/parameters/z", "2\n")
	pipe := filepath.Join(root, "gadget/parameters/m")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	p := new(Prober)
	look := func(want map[string]string) {
		t.Helper()
		m, ok, err := readModule(root, "gadget", p.within)
		if err != nil || !ok {
			t.Fatalf("ok %v, err %v", ok, err)
		}
		if diff := cmp.Diff(want, m.Parameters); diff != "" {
			t.Error(diff)
		}
	}
	look(map[string]string{"a": "1"})
	look(map[string]string{"a": "1"}) // which begins no second read

	// The driver answers after all.
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("3\n"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	for hangs := true; hangs; { // until the read has ended
		p.mu.Lock()
		hangs = p.stuck[pipe]
		p.mu.Unlock()
	}
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	write(t, root, "gadget/parameters/m", "3\n")
	look(map[string]string{"a": "1", "m": "3", "z": "2"})
}
