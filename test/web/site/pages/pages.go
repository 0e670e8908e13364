// SPDX-License-Identifier: Apache-2.0

// Package pages reads a built site, without a browser: its pages, where their links lead, and what
// their tables list.
package pages

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// Page is one HTML file of a site.
type Page struct {
	// Path from the site's root, such as /guide/install.html.
	Path string
	// Anchors are the identifiers that links may lead to.
	Anchors map[string]bool
	// Links are what a reader can follow, Assets what a browser loads by itself.
	Links, Assets []string
	// Headings of the page's own text, the first one of level 1.
	Headings []Heading
	text     *html.Node
}

// Heading is one of a page.
type Heading struct {
	Level    int
	Text, ID string
}

// Site is all that was built.
type Site struct {
	Pages []*Page
	// Files are all files, pages included, by their path.
	Files map[string]bool
}

// Read reads the site in a folder.
func Read(dir string) (*Site, error) {
	site := &Site{Files: map[string]bool{}}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, file)
		if err != nil {
			return fmt.Errorf("name a file: %w", err)
		}
		at := "/" + filepath.ToSlash(relative)
		site.Files[at] = true
		// What is shown for an address that is not there belongs to no address.
		if path.Ext(at) != ".html" || at == "/404.html" {
			return nil
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read a page: %w", err)
		}
		page, err := parse(at, string(content))
		if err != nil {
			return err
		}
		site.Pages = append(site.Pages, page)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the site: %w", err)
	}
	return site, nil
}

func parse(at, content string) (*Page, error) {
	root, err := html.Parse(strings.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", at, err)
	}
	p := &Page{Path: at, Anchors: map[string]bool{}}
	for node := range root.Descendants() {
		if node.Type == html.ElementNode {
			p.take(node)
		}
	}
	if p.text == nil {
		return p, nil
	}
	for node := range p.text.Descendants() {
		if level := slices.Index([]string{"h1", "h2", "h3", "h4", "h5", "h6"}, node.Data); node.Type == html.ElementNode && level >= 0 {
			p.Headings = append(p.Headings, Heading{Level: level + 1, Text: words(node), ID: attribute(node, "id")})
		}
	}
	return p, nil
}

func (p *Page) take(node *html.Node) {
	if id := attribute(node, "id"); id != "" {
		p.Anchors[id] = true
	}
	switch node.Data {
	case "a":
		if to := attribute(node, "href"); to != "" {
			p.Links = append(p.Links, to)
		}
	case "link":
		if to := attribute(node, "href"); to != "" && attribute(node, "rel") != "canonical" {
			p.Assets = append(p.Assets, to)
		}
	case "script", "img", "source", "iframe", "video", "audio":
		if from := attribute(node, "src"); from != "" && !strings.HasPrefix(from, "data:") {
			p.Assets = append(p.Assets, from)
		}
	}
	if slices.Contains(strings.Fields(attribute(node, "class")), "vp-doc") && p.text == nil {
		p.text = node
	}
}

// Broken returns the links and assets of all pages that lead nowhere, and how many links there are.
// Links to other machines are read, not followed; an asset must not come from one, but may be in
// the page itself.
func (s *Site) Broken() (links int, broken []string) {
	anchors := map[string]map[string]bool{}
	for _, p := range s.Pages {
		anchors[p.Path] = p.Anchors
	}
	for _, p := range s.Pages {
		for _, asset := range p.Assets {
			to, err := url.Parse(asset)
			if err == nil && to.Scheme == "data" {
				continue
			}
			if err != nil || to.Host != "" || !s.Files[resolve(p.Path, to.Path)] {
				broken = append(broken, fmt.Sprintf("%s loads %s", p.Path, asset))
			}
		}
		for _, link := range p.Links {
			links++
			if !s.leads(p, link, anchors) {
				broken = append(broken, fmt.Sprintf("%s links to %s", p.Path, link))
			}
		}
	}
	slices.Sort(broken)
	return links, slices.Compact(broken)
}

// Disordered are the pages whose headings are not in order: one of level 1 at first, no other of
// it, and none that is more than a level below the one before.
func (s *Site) Disordered() []string {
	var found []string
	for _, p := range s.Pages {
		if problem := outline(p.Headings); problem != "" {
			found = append(found, p.Path+" "+problem)
		}
	}
	return found
}

func outline(headings []Heading) string {
	level := 0
	for i, h := range headings {
		switch {
		case h.Text == "":
			return "has an empty heading"
		case (h.Level == 1) != (i == 0):
			return fmt.Sprintf("has %q at level %d", h.Text, h.Level)
		case h.Level > level+1:
			return fmt.Sprintf("skips a level before %q", h.Text)
		}
		level = h.Level
	}
	if level == 0 {
		return "has no heading"
	}
	return ""
}

func (s *Site) leads(p *Page, link string, anchors map[string]map[string]bool) bool {
	to, err := url.Parse(link)
	if err != nil {
		return false
	}
	if to.Host != "" || to.Scheme != "" {
		return to.Scheme == "mailto" || to.Scheme == "https" && strings.Contains(to.Host, ".")
	}
	at := p.Path
	if to.Path != "" {
		at = resolve(p.Path, to.Path)
	}
	if !s.Files[at] {
		return false
	}
	known, isPage := anchors[at]
	return to.Fragment == "" || isPage && known[to.Fragment]
}

// resolve is the file that a path on a page leads to.
func resolve(from, to string) string {
	at := to
	if !strings.HasPrefix(to, "/") {
		at = path.Join(path.Dir(from), to)
	} else {
		at = path.Clean(at)
	}
	if strings.HasSuffix(to, "/") {
		return path.Join(at, "index.html")
	}
	return at
}

func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// words are all text in a node. What only a screen reader or a mouse sees of a heading's own link
// is none of it.
func words(node *html.Node) string {
	var b strings.Builder
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
		if n.Type == html.ElementNode && attribute(n, "class") == "header-anchor" {
			return
		}
		for child := range n.ChildNodes() {
			walk(child)
		}
	}
	walk(node)
	return strings.Join(strings.Fields(b.String()), " ")
}
