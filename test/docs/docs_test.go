// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/test/docs/page"
)

const root = "../.."

func pages(t *testing.T) []*page.Page {
	t.Helper()
	all, err := readPages(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLinksOfAllPagesLead to files and headings that are there.
func TestLinksOfAllPagesLead(t *testing.T) {
	all := pages(t)
	if len(all) < 20 {
		t.Errorf("found %d pages only", len(all))
	}
	for _, problem := range page.CheckLinks(root, values(all)) {
		t.Error(problem)
	}
}

// TestBlocksOfTheGuideHaveTags: nothing on the guide's pages is neither run nor compared, and what
// stands for code is the code.
func TestBlocksOfTheGuideHaveTags(t *testing.T) {
	chosen, err := choose(pages(t), "")
	if err != nil {
		t.Fatal(err)
	}
	r := result{Kinds: map[string]int{}}
	c := checker{root: root, result: &r}
	c.static(chosen)
	if r.Problems > 0 {
		t.Errorf("%d problems; they are printed above", r.Problems)
	}
}

// TestDamageIsSeen: each thing that BREAK does to a page without a cluster is a problem.
func TestDamageIsSeen(t *testing.T) {
	const content = "# A\n\n```sh ci\nmake lint\n```\n\n```go from=images/image.go\npackage images\n```\n\n```text " +
		"drawing\nModuleSpec\n```\n\n```text test=TestDamageIsSeen\nx\n```\n"
	for what, want := range map[string]int{"": 0, "untagged": 1, "excerpt": 1, "ci": 1, "test": 1, "drawing": 1} {
		p := page.Parse("a.md", content)
		if err := damage(what, []*page.Page{&p}); err != nil {
			t.Fatal(err)
		}
		r := result{Kinds: map[string]int{}}
		c := checker{root: root, result: &r}
		c.static([]*page.Page{&p})
		if r.Problems != want || r.Ran != 4-want {
			t.Errorf("BREAK=%s: %d problems, %d of 4 blocks checked", what, r.Problems, r.Ran)
		}
	}
}

// TestOutputStandsUnderItsCommand: a text block is compared with what the sh block before it
// printed, so both have one heading.
func TestOutputStandsUnderItsCommand(t *testing.T) {
	for content, want := range map[string]int{
		"# A\n\n```sh\ntrue\n```\n\nprints\n\n```text\nx\n```\n":      0,
		"# A\n\n```sh\ntrue\n```\n\n## B\n\n```text\n--flag=x\n```\n": 1,
		"# A\n\n```text\nx\n```\n":                                    1,
	} {
		p := page.Parse("a.md", content)
		r := result{Kinds: map[string]int{}}
		c := checker{root: root, result: &r}
		c.static([]*page.Page{&p})
		if r.Problems != want {
			t.Errorf("%d problems in %q, want %d", r.Problems, content, want)
		}
	}
}

func TestKindOf(t *testing.T) {
	for tag, want := range map[string]kind{
		"": unknown, "bash": unknown, "text": output, "text drawing": drawing, "yaml": manifest, "yaml apply save=x.yaml": manifest,
		"go":           compiles,
		"go from=x.go": excerpt, "dockerfile from=Dockerfile": excerpt, "dockerfile": unknown, "sh": runs, "sh exit=1": runs, "sh ci": inCI,
		"sh ci exit=1":  unknown,
		"sh background": unknown, `sh background until="up"`: service, "text test=TestX": inTest, "sh skip": unknown, "yaml skip": unknown,
		"go skip": unknown,
	} {
		p := page.Parse("a.md", "```"+tag+"\nx\n```\n")
		if got, err := kindOf(p.Blocks[0]); got != want || (err != nil) != (want == unknown) {
			t.Errorf("%q: %d, %v; want %d", tag, got, err, want)
		}
	}
}

// TestVariablesAreAllInTheGuide, with the values that they have.
func TestVariablesAreAllInTheGuide(t *testing.T) {
	content, err := os.ReadFile(root + "/docs/guide/mappings.md")
	if err != nil {
		t.Fatal(err)
	}
	debian, el := kernel.Parse("6.12.57+deb12-amd64").TagSafe().Variables(nil),
		kernel.Parse("4.18.0-553.el8_10.x86_64").TagSafe().Variables(nil)
	inGuide := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		for i, cell := range cells {
			cells[i] = strings.Trim(cell, " `\n")
		}
		name := cells[1]
		inGuide[name] = true
		if strings.HasPrefix(name, "KERNEL_") && (cells[2] != debian[name] || cells[3] != el[name]) {
			t.Errorf("%s is %q and %q, the guide has %q and %q", name, debian[name], el[name], cells[2], cells[3])
		}
	}
	if diff := cmp.Diff(kernel.VariableNames(), slices.Sorted(maps.Keys(inGuide))); diff != "" {
		t.Errorf("variables (-known +in the guide):\n%s", diff)
	}
}
