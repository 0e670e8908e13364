// SPDX-License-Identifier: Apache-2.0

package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = "# A `title`: one\n\ntext [a](b.md#c), [`F`](x.go) and `[no](link)`\n\n```sh background until=\"it runs\" exit=1\nmake " +
	"run\n\n```\n\n" +
	"- item\n\n      of the list\n\n## A title: one\n\n~~~\n```\n~~~\n"

func TestParse(t *testing.T) {
	got := Parse("x.md", sample)
	want := Page{
		Path: "x.md",
		Blocks: []Block{
			{Page: "x.md", Line: 5, Section: "A `title`: one", Lang: "sh",
				Attributes: map[string]string{"background": "", "until": "it runs", "exit": "1"},
				Text:       "make run\n\n"},
			{Page: "x.md", Line: 16, Section: "A title: one", Attributes: map[string]string{}, Text: "```\n"},
		},
		Links:   []Link{{Page: "x.md", Line: 3, Target: "b.md#c"}, {Page: "x.md", Line: 3, Target: "x.go", Name: "F"}},
		Anchors: map[string]bool{"a-title-one": true, "a-title-one-1": true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseFindsWhatNoPageMayHave(t *testing.T) {
	for given, content := range map[string]string{
		"an indented block":            "text\n\n    kubectl get pods\n",
		"an indented block after list": "- item\n\ntext\n\n    kubectl get pods\n",
		"a fence without an end":       "```sh\nmake\n",
		"a tag that cannot be read":    "```sh =x\n```\n",
	} {
		if got := Parse("x.md", content).Problems; len(got) != 1 {
			t.Errorf("%s: %q, want one problem", given, got)
		}
	}
}

func TestCheckLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "b.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := Page{Path: "b.md", Anchors: map[string]bool{"here": true}}
	for target, fine := range map[string]bool{
		"b.md": true, "b.md#here": true, "#top": true, "https://kubernetes.io/docs/": true, "mailto:a@example.com": true, ".": true,
		"b.md#gone": false, "#gone": false, "c.md": false, "../b.md": false, "http://kubernetes.io": false, "https://nowhere": false, "%": false,
		".#x": false,
	} {
		page := Page{Path: "a.md", Anchors: map[string]bool{"top": true}, Links: []Link{{Page: "a.md", Line: 1, Target: target}}}
		if problems := CheckLinks(dir, []Page{page, other}); (len(problems) == 0) != fine {
			t.Errorf("%s: %q", target, problems)
		}
	}
}

func TestCheckLinksKnowsNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte("func Here() {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, fine := range map[string]bool{"Here": true, "": true, "Gone": false} {
		page := Page{Path: "a.md", Links: []Link{{Page: "a.md", Line: 1, Target: "x.go", Name: name}}}
		if problems := CheckLinks(dir, []Page{page}); (len(problems) == 0) != fine {
			t.Errorf("%s: %q", name, problems)
		}
	}
}

func TestCheckExcerpt(t *testing.T) {
	const source = "package x\n\nfunc a() {\n\tone()\n\n\ttwo()\n\tthree()\n}\n"
	for excerpt, fine := range map[string]bool{
		"one()\ntwo()": true, "func a() {\n  // …\n  three()\n}": true, "…\npackage x": true, source: true,
		"two()\none()": false, "one()\nthree()": false, "three()\n…\none()": false, "One()": false, "…": false, "": false,
	} {
		if err := CheckExcerpt(excerpt, source); (err == nil) != fine {
			t.Errorf("%q: %v", excerpt, err)
		}
	}
}

func TestCheckOutput(t *testing.T) {
	const got = "NAME   AGE\na      5s\nb      7s\n\n"
	for want, fine := range map[string]bool{
		got: true, "NAME AGE\na …\nb 7s": true, "…\nb …s": true, "NAME AGE\n…": true, "…\na 5s\n…": true, "…": false, "": false, "… …": false,
		"NAME AGE": false, "a 5s\nb 7s": false, "…\nc …": false, "NAME AGE\na 5s\nb 7s\nc 1s": false, "NAME AGE\na 6…\nb 7s": false,
		"…\nb 7s\na 5s": false,
	} {
		if err := CheckOutput(want, got); (err == nil) != fine {
			t.Errorf("%q: %v", strings.ReplaceAll(want, "\n", "⏎"), err)
		}
	}
}
