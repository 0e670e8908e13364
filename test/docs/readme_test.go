// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// demoLine takes a line that `make demo` prints apart: what it did; a node, its kernel and its
// state; or the Module and its condition.
var demoLine = regexp.MustCompile(`^\[ *[0-9.]+s\] (applying) (\S+)$|^hollow-\d+ +(\S+) +(\S.*)$|^module default/(\S+): [A-Z]\w*: (.+)$`)

// TestReadmeShowsTheDemo: README's lines of `make demo` consist of what the demo says, and of what
// the status says that it shows.
func TestReadmeShowsTheDemo(t *testing.T) {
	source := texts(t, "test/demo/*.go") + texts(t, "internal/shared/status/*.go")
	lines := strings.Split(strings.TrimSpace(transcript(t, "README.md", t.Name())), "\n")
	if len(lines) != 6 {
		t.Errorf("README shows %d lines, want 6", len(lines))
	}
	for _, line := range lines {
		words := demoLine.FindStringSubmatch(line)
		if result, ok := strings.CutPrefix(line, "RESULT "); ok {
			words = append([]string{""}, keys(t, result)...)
		}
		if len(words) < 2 {
			t.Errorf("not a line of the demo: %s", line)
			continue
		}
		for _, word := range words[1:] {
			if !strings.Contains(source, word) {
				t.Errorf("%s: the demo does not say %q", line, word)
			}
		}
	}
}

// transcript is the text of the block that a test holds to.
func transcript(t *testing.T, path, test string) string {
	t.Helper()
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			if p.Path == path && b.Attributes["test"] == test {
				return b.Text
			}
		}
	}
	t.Fatalf("%s has no block with test=%s", path, test)
	return ""
}

// texts are all files that a pattern names, tests aside.
func texts(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s names no files: %v", pattern, err)
	}
	var all strings.Builder
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

// keys of a JSON object, as the tags of a struct name them.
func keys(t *testing.T, object string) []string {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal([]byte(object), &values); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	var names []string
	for key := range values {
		names = append(names, `json:"`+key+`"`)
	}
	return names
}
