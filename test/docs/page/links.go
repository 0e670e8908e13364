// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// CheckLinks returns what is wrong with the links of pages, whose paths are relative to root: a
// file that is not there, a heading that is not there, an address that is none, or a name that does
// not stand in the Go file that it leads to. Addresses of other machines are read, not asked.
func CheckLinks(root string, pages []Page) []string {
	anchors := map[string]map[string]bool{}
	for _, p := range pages {
		anchors[p.Path] = p.Anchors
	}
	var problems []string
	for _, p := range pages {
		for _, l := range p.Links {
			if err := l.check(root, anchors); err != nil {
				problems = append(problems, fmt.Sprintf("%s:%d: %v", l.Page, l.Line, err))
			}
		}
	}
	return problems
}

func (l Link) check(root string, anchors map[string]map[string]bool) error {
	target, err := url.Parse(l.Target)
	if err != nil {
		return fmt.Errorf("link %s: %w", l.Target, err)
	}
	if target.Scheme != "" || target.Host != "" {
		return external(target)
	}
	path := l.Page
	if target.Path != "" {
		path = filepath.Join(filepath.Dir(l.Page), filepath.FromSlash(target.Path))
		if strings.HasPrefix(path, "..") || filepath.IsAbs(target.Path) {
			return fmt.Errorf("link %s leads out of the repository", l.Target)
		}
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			return fmt.Errorf("link %s: there is no %s", l.Target, path)
		}
	}
	if l.Name != "" && filepath.Ext(path) == ".go" {
		return l.names(filepath.Join(root, path))
	}
	known, isPage := anchors[path]
	if target.Fragment != "" && isPage && !known[target.Fragment] {
		return fmt.Errorf("link %s: %s has no such heading", l.Target, path)
	}
	if target.Fragment != "" && !isPage {
		return fmt.Errorf("link %s: %s is not a page with headings", l.Target, path)
	}
	return nil
}

func external(target *url.URL) error {
	if target.Scheme != "https" && target.Scheme != "mailto" {
		return fmt.Errorf("link %s: say https", target)
	}
	if target.Scheme == "https" && !strings.Contains(target.Hostname(), ".") {
		return fmt.Errorf("link %s: no host", target)
	}
	return nil
}

func (l Link) names(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("link %s: %w", l.Target, err)
	}
	if !strings.Contains(string(content), l.Name) {
		return fmt.Errorf("link %s: there is no %s in it", l.Target, l.Name)
	}
	return nil
}
