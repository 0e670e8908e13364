// SPDX-License-Identifier: Apache-2.0

package provenance

import (
	"encoding/json"
	"strings"
	"testing"
)

// stateOf states a sample build, with a change.
func stateOf(change func(*Build)) ([]byte, error) {
	b := Build{
		Name: "sample", SHA256: strings.Repeat("ab", 32), Version: "v1", Processors: []any{"amd64", "arm64"}, Packages: []any{"cmd/sample"},
		Compiler: "go1.26.0", Sources: "https://example.com/sample", Commit: strings.Repeat("1", 40),
		Parts: []string{"pkg:deb/debian/kmod@30?arch=amd64"},
	}
	change(&b)
	return State(b)
}

// TestState: what went into a build is in the statement, and a change of it changes the statement.
func TestState(t *testing.T) {
	first, err := stateOf(func(*Build) {})
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(first) {
		t.Fatalf("not JSON: %s", first)
	}
	for _, want := range []string{
		`"git+https://example.com/sample"`, `"gitCommit": "1111`, `"pkg:deb/debian/kmod@30?arch=amd64"`, `"sha256": "abab`, `"go": "go1.26.0"`,
		`"sourcesChanged": false`, `"arm64"`, `"cmd/sample"`,
	} {
		if !strings.Contains(string(first), want) {
			t.Errorf("no %s in\n%s", want, first)
		}
	}
	for given, change := range map[string]func(*Build){
		"another commit":    func(b *Build) { b.Commit = strings.Repeat("2", 40) },
		"changed sources":   func(b *Build) { b.Changed = true },
		"another compiler":  func(b *Build) { b.Compiler = "go1.26.1" },
		"another processor": func(b *Build) { b.Processors = []any{"amd64"} },
		"another part":      func(b *Build) { b.Parts = nil },
	} {
		other, err := stateOf(change)
		if err != nil {
			t.Fatal(err)
		}
		if string(other) == string(first) {
			t.Errorf("%s: the same statement", given)
		}
	}
}

func TestStateRefuses(t *testing.T) {
	for given, change := range map[string]func(*Build){
		"no digest":              func(b *Build) { b.SHA256 = "" },
		"a digest that is none":  func(b *Build) { b.SHA256 = "latest" },
		"a parameter of no kind": func(b *Build) { b.Processors = []any{struct{}{}} },
	} {
		if _, err := stateOf(change); err == nil {
			t.Errorf("%s: no error", given)
		}
	}
}
