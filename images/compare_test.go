// SPDX-License-Identifier: Apache-2.0

//go:build compare

package images

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unpacked lays this machine's kmod out as if it came in packages: libraries under links, absolute
// ones among them.
func unpacked(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("kmod")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	place := func(local, target string) {
		data, err := os.ReadFile(local)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, target)), 0o755), os.WriteFile(filepath.Join(dir, target), data, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	place(program, "kmod/bin/kmod")
	output, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v", program, err)
	}
	for line := range strings.Lines(string(output)) {
		for _, word := range strings.Fields(line) {
			if !strings.HasPrefix(word, "/") {
				continue
			}
			place(word, filepath.Join("libs/lib/there", filepath.Base(word)+".1.2"))
			if err := os.Symlink("/lib/there/"+filepath.Base(word)+".1.2", filepath.Join(dir, "libs/lib", filepath.Base(word))); err != nil {
				t.Fatal(err)
			}
		}
	}
	place(os.DevNull, "kmod/usr/share/doc/kmod/copyright")
	return dir
}

// TestKmodRunsWithItsFilesAlone in a root directory that holds nothing else.
func TestKmodRunsWithItsFilesAlone(t *testing.T) {
	files, err := KmodFiles(unpacked(t))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(slices.Collect(maps.Keys(files)), "/usr/share/doc/kmod/copyright") {
		t.Error("the licence's text is missing")
	}
	if os.Geteuid() != 0 {
		t.Fatal("changing the root directory needs root")
	}
	root := t.TempDir()
	for target, local := range files {
		data, err := os.ReadFile(local)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, target)), 0o755), os.WriteFile(filepath.Join(root, target), data, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(chroot, root, KmodProgram, "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(output), "kmod version") {
		t.Errorf("error %v, it says %s", err, output)
	}
}

func TestKmodFilesMissing(t *testing.T) {
	dir := unpacked(t)
	if err := os.RemoveAll(filepath.Join(dir, "libs/lib/there")); err != nil {
		t.Fatal(err)
	}
	if _, err := KmodFiles(dir); err == nil || !strings.Contains(err.Error(), "in none of its packages") {
		t.Errorf("error %v", err)
	}
}
