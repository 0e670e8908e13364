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
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// TestMapHasEveryPackage: the map in CONTRIBUTING names each folder with Go files, and no other.
// What is generated and Go modules below tools are named as a whole.
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
		left := strings.HasPrefix(entry.Name(), ".") && name != "." ||
			slices.Contains([]string{"bin", "dist", "vendor", "testdata", "applyconfiguration"}, entry.Name())
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

// TestReadmeAndChangelogAreShort: README has at most 90 lines, and an entry of CHANGELOG is one
// line of at most 140 characters.
func TestReadmeAndChangelogAreShort(t *testing.T) {
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > 90 {
		t.Errorf("README has %d lines, want 90 at most", lines)
	}
	_, entries, _ := strings.Cut(read(t, "CHANGELOG.md"), "\n## ")
	for line := range strings.Lines(entries) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, " ") || utf8.RuneCountInString(line) > 140 {
			t.Errorf("not an entry of one line: %s", line)
		}
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
