// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/drover-project/drover/images/licence"
)

// TestJudgeNamesAllThatIsWrong: `make manifests`, and so `make verify`, fails with these words.
func TestJudgeNamesAllThatIsWrong(t *testing.T) {
	modules := []*linkedModule{
		{Path: "example.com/good", Version: "v1.0.0"},
		{Path: "example.com/gpl", Version: "v2.0.0"},
		{Path: "example.com/secret", Version: "v3.0.0"},
	}
	err := judge(modules, func(path, _ string) (string, error) {
		switch path {
		case "example.com/good":
			return "MIT", nil
		case "example.com/gpl":
			return "GPL-3.0-only", nil
		default:
			return "", errors.Join(licence.ErrNone, errors.New(path))
		}
	})
	if !errors.Is(err, licence.ErrNone) || !errors.Is(err, licence.ErrNotAllowed) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"example.com/gpl v2.0.0", "example.com/secret"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "example.com/good") {
		t.Errorf("error %v names what is right", err)
	}
	if err := judge(modules[:1], func(string, string) (string, error) { return "MIT", nil }); err != nil || modules[0].Licence != "MIT" {
		t.Errorf("a module under MIT: %v, licence %q", err, modules[0].Licence)
	}
}

// TestLinked: a module counts for those programs that import it, and for no other.
func TestLinked(t *testing.T) {
	modules, err := linked(t.Context(), "../..", []string{"cmd/drover-kcall", "cmd/drover-signer", "images/pause"})
	if err != nil {
		t.Fatal(err)
	}
	in := map[string][]string{}
	for _, m := range modules {
		in[m.Path] = m.Programs
		if m.Version == "" {
			t.Errorf("%s has no version", m.Path)
		}
	}
	if got := in["github.com/google/go-containerregistry"]; !slices.Equal(got, []string{"drover-signer"}) {
		t.Errorf("go-containerregistry is in %v", got)
	}
	if got := in["golang.org/x/sys"]; !slices.Contains(got, "drover-kcall") {
		t.Errorf("golang.org/x/sys is in %v", got)
	}
	for path, programs := range in {
		if slices.Contains(programs, "pause") {
			t.Errorf("the pause program has %s", path)
		}
	}
	if _, err := linked(t.Context(), "../..", []string{"cmd/missing"}); err == nil {
		t.Error("a program that is not there was listed")
	}
}

func TestRender(t *testing.T) {
	got := render([]*linkedModule{
		{Path: "example.com/everywhere", Version: "v1.0.0", Licence: "MIT", Programs: []string{"a", "b", "c"}},
		{Path: "example.com/most", Version: "v1.1.0", Licence: "MIT", Programs: []string{"a", "b"}},
		{Path: "example.com/one", Version: "v1.2.0", Licence: "Apache-2.0", Programs: []string{"c"}},
	})
	for _, want := range []string{
		"3 modules are linked into these programs:",
		"| MIT | 2 |",
		"| `example.com/everywhere` | v1.0.0 | MIT | all |",
		"| `example.com/most` | v1.1.0 | MIT | all but `c` |",
		"| `example.com/one` | v1.2.0 | Apache-2.0 | `c` |",
		"| `kmod` | GPL-2.0-or-later AND LGPL-2.1-or-later |",
	} {
		if !strings.Contains(got, want+"\n") && !strings.Contains(got, want+" ") {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
