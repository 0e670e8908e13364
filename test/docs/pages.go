// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-project/drover/test/docs/page"
)

// readPages reads all Markdown files below root that belong to the repository.
func readPages(root string) ([]*page.Page, error) {
	var pages []*page.Page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") ||
			slices.Contains([]string{"bin", "dist", "vendor", "testdata"}, name)) {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read a page: %w", err)
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return fmt.Errorf("name a page: %w", err)
		}
		p := page.Parse(filepath.ToSlash(relative), string(content))
		pages = append(pages, &p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for pages: %w", err)
	}
	return pages, nil
}

// choose returns the pages whose blocks are run: README and the guide, or those of them that are
// named.
func choose(all []*page.Page, names string) ([]*page.Page, error) {
	var chosen []*page.Page
	for _, p := range all {
		guide := p.Path == "README.md" || strings.HasPrefix(p.Path, "docs/guide/")
		if guide && (names == "" || slices.Contains(strings.Split(names, ","), strings.TrimPrefix(p.Path, "docs/guide/"))) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no page is named %q", names)
	}
	return chosen, nil
}

func values(pages []*page.Page) []page.Page {
	all := make([]page.Page, 0, len(pages))
	for _, p := range pages {
		all = append(all, *p)
	}
	return all
}

// damages say what BREAK does to the text of the first block of a kind.
var damages = map[string]struct {
	of   kind
	text string
}{
	"command": {runs, "false\n"},
	"output":  {output, "no command prints this\n"},
	"yaml":    {manifest, "noSuchField: true\n"},
	"go":      {compiles, "var wrong int = \"text\"\n"},
	"excerpt": {excerpt, "no source has this line\n"},
	"ci":      {inCI, "make no-such-target\n"},
	"drawing": {drawing, "Missing" + "Name\n"},
}

// damage breaks something on purpose.
func damage(what string, pages []*page.Page) error {
	if what == "" {
		return nil
	}
	for _, p := range pages {
		if what == "link" {
			p.Links = append(p.Links, page.Link{Page: p.Path, Line: 1, Target: "#no-such-heading"})
			return nil
		}
		for i, b := range p.Blocks {
			k, _ := kindOf(b)
			switch d, known := damages[what]; {
			case what == "untagged":
				p.Blocks[i].Lang = ""
			case what == "test" && k == inTest:
				p.Blocks[i].Attributes["test"] = "TestThatIsNotThere"
			case known && k == d.of:
				p.Blocks[i].Text += d.text
			default:
				continue
			}
			return nil
		}
	}
	return fmt.Errorf("BREAK=%s: no such block on these pages", what)
}
