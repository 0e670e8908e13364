// SPDX-License-Identifier: Apache-2.0

// Package page reads what can be checked out of a Markdown page: fenced blocks with their tags,
// headings and links. It knows as much of Markdown as this repository's pages use.
package page

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a fenced block.
type Block struct {
	// Page is the file's path, Line the line of the opening fence, from 1.
	Page string
	Line int
	// Section is the heading that the block stands under, "" before the first.
	Section string
	// Lang is the first word of the info string: sh, text, yaml, go or another language.
	Lang string
	// Attributes are the further words of the info string: key=value, key="a value", or a word alone,
	// which has the value "".
	Attributes map[string]string
	// Text is what the block holds, each line with its end.
	Text string
}

// Where names the block in messages.
func (b Block) Where() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Has says whether the info string has an attribute.
func (b Block) Has(attribute string) bool {
	_, ok := b.Attributes[attribute]
	return ok
}

// Link is a link or an image.
type Link struct {
	Page   string
	Line   int
	Target string
	// Name is the link's text if that is nothing but code.
	Name string
}

// Page is what was found in a file.
type Page struct {
	Path   string
	Blocks []Block
	Links  []Link
	// Anchors are the fragments that lead to the page's headings.
	Anchors map[string]bool
	// Problems are things that no page may have, one line each.
	Problems []string
}

var (
	fence     = regexp.MustCompile("^( {0,3})(```+|~~~+)(.*)$")
	heading   = regexp.MustCompile(`^#{1,6} +(.+?)( +#+)?$`)
	attribute = regexp.MustCompile(`^([A-Za-z][A-Za-z-]*)(=("[^"]*"|\S+))?(\s+|$)`)
	listItem  = regexp.MustCompile(`^ *([-*+]|\d+[.)]) `)
	link      = regexp.MustCompile(`!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)(?: "[^"]*")?\)`)
	named     = regexp.MustCompile("\\[`([^`]*)`\\]\\(")
	code      = regexp.MustCompile("`[^`]*`")
	symbols   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Parse reads a page. It never fails: what is wrong is in Problems.
func Parse(path, content string) Page {
	s := scanner{page: Page{Path: path, Anchors: map[string]bool{}}, seen: map[string]int{}}
	for i, line := range strings.Split(content, "\n") {
		s.line(i+1, line)
	}
	if s.open != nil {
		s.problem(s.open.Line, "a fenced block without an end")
	}
	return s.page
}

type scanner struct {
	page    Page
	seen    map[string]int
	section string
	// open is the block that is being read; closing is the fence that ends it, indent what its lines
	// begin with.
	open            *Block
	closing, indent string
	// blank: the line before was empty; list: the paragraph before belongs to a list.
	blank, list bool
}

func (s *scanner) problem(line int, format string, args ...any) {
	s.page.Problems = append(s.page.Problems, fmt.Sprintf("%s:%d: %s", s.page.Path, line, fmt.Sprintf(format, args...)))
}

func (s *scanner) line(number int, line string) {
	if s.open != nil {
		s.inside(line)
		return
	}
	found := fence.FindStringSubmatch(line)
	switch {
	case found != nil:
		s.begin(number, found[1], found[2], found[3])
	case strings.TrimSpace(line) == "":
		s.blank = true
		return
	case strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t"):
		if s.blank && !s.list {
			s.problem(number, "an indented block: fence it and give it a tag")
		}
	default:
		s.text(number, line)
	}
	s.blank = false
}

func (s *scanner) text(number int, line string) {
	s.list = listItem.MatchString(line) || s.list && (!s.blank || strings.HasPrefix(line, " "))
	if found := heading.FindStringSubmatch(line); found != nil {
		s.list, s.section = false, found[1]
		s.anchor(found[1])
	}
	plain := code.ReplaceAllString(named.ReplaceAllString(line, "[\x00$1]("), "code") // what stands in code is no link
	for _, found := range link.FindAllStringSubmatch(plain, -1) {
		name, isCode := strings.CutPrefix(found[1], "\x00")
		if !isCode {
			name = ""
		}
		s.page.Links = append(s.page.Links, Link{Page: s.page.Path, Line: number, Target: found[2], Name: name})
	}
}

// anchor is the fragment of a heading, made as GitHub makes it.
func (s *scanner) anchor(title string) {
	title = link.ReplaceAllStringFunc(title, func(l string) string { return l[strings.Index(l, "[")+1 : strings.LastIndex(l, "](")] })
	name := strings.ReplaceAll(symbols.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
	n := s.seen[name]
	s.seen[name]++
	if n > 0 {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	s.page.Anchors[name] = true
}

func (s *scanner) begin(number int, indent, closing, info string) {
	b := &Block{Page: s.page.Path, Line: number, Section: s.section, Attributes: map[string]string{}}
	b.Lang, info, _ = strings.Cut(strings.TrimSpace(info), " ")
	for info = strings.TrimSpace(info); info != ""; {
		found := attribute.FindStringSubmatch(info)
		if found == nil {
			s.problem(number, "cannot read the tag from %q on", info)
			break
		}
		b.Attributes[found[1]] = strings.Trim(found[3], `"`)
		info = info[len(found[0]):]
	}
	s.open, s.closing, s.indent = b, closing, indent
}

func (s *scanner) inside(line string) {
	if bare := strings.TrimSpace(line); strings.HasPrefix(bare, s.closing) && strings.Trim(bare, s.closing[:1]) == "" {
		s.page.Blocks = append(s.page.Blocks, *s.open)
		s.open = nil
		return
	}
	s.open.Text += strings.TrimPrefix(line, s.indent) + "\n"
}
