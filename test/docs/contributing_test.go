// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMapHasEveryPackage: the map in CONTRIBUTING names each folder with Go files, and no other. What is generated and Go modules below tools
// are named as a whole.
func TestMapHasEveryPackage(t *testing.T) {
	want := map[string]bool{"api/*/applyconfiguration": true, "tools": true, "tools/devcluster": true}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		left := strings.HasPrefix(entry.Name(), ".") && name != "." || slices.Contains([]string{"bin", "dist", "vendor", "testdata", "applyconfiguration"}, entry.Name())
		if entry.IsDir() && (left || name == "tools") {
			return filepath.SkipDir
		}
		if !entry.IsDir() && filepath.Ext(name) == ".go" {
			want[filepath.ToSlash(filepath.Dir(name))] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Map\n")
	table, _, _ = strings.Cut(table, "\n## ")
	has := map[string]bool{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				has[name[1]] = true
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(has))); diff != "" {
		t.Errorf("packages (-there +in the map):\n%s", diff)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
