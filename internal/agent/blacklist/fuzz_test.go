// SPDX-License-Identifier: Apache-2.0

package blacklist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzForeign: a file in modprobe.d that is not ours is neither changed nor removed.
func FuzzForeign(f *testing.F) {
	f.Add([]byte("blacklist nouveau\n"))
	f.Add([]byte(header + "ns/m\nblacklist drv\n"))
	f.Add([]byte(strings.TrimSuffix(header, " ")))
	f.Fuzz(func(t *testing.T, content []byte) {
		files := New(t.TempDir())
		name := filepath.Join(files.dir, "drover-ns.m.conf")
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		ours := strings.HasPrefix(string(content), header)
		err := files.Put("ns/m", []string{"drv"})
		now, read := os.ReadFile(name)
		if (err == nil) != ours || read != nil || !ours && string(now) != string(content) {
			t.Errorf("put: %v; now %q, %v", err, now, read)
		}
		if err := files.Retain(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(name); (err == nil) == ours {
			t.Errorf("retained: %v", err)
		}
	})
}

// FuzzPut: a file names exactly the modules, a line each, and lies in its folder.
func FuzzPut(f *testing.F) {
	f.Add("ns/m", "drv", "drv_b")
	f.Add("ns/../x", "a\ninstall x /bin/sh", "")
	f.Add("a.b/c", "*", "options")
	f.Fuzz(func(t *testing.T, owner, one, two string) {
		files := New(t.TempDir())
		err := files.Put(owner, []string{one, two})
		entries, read := os.ReadDir(files.dir)
		if read != nil || (err == nil) != (len(entries) == 1) {
			t.Fatalf("put: %v; %d files, %v", err, len(entries), read)
		}
		if err != nil {
			return
		}
		content, read := os.ReadFile(filepath.Join(files.dir, entries[0].Name()))
		if read != nil {
			t.Fatal(read)
		}
		for i, line := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
			if i > 0 && line != "blacklist "+one && line != "blacklist "+two {
				t.Errorf("line %q", line)
			}
		}
	})
}
