// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// Existing is what must be listed, as `go run ./hack/reference -list` prints it.
type Existing struct {
	Fields  map[string][]string `json:"fields"`
	Flags   map[string][]string `json:"flags"`
	Reasons []string            `json:"reasons"`
	Metrics []string            `json:"metrics"`
}

// Verdict compares what exists with what the pages list.
type Verdict struct {
	Fields, Flags, Reasons, Metrics int
	// Undocumented exist and are on no page, or have no meaning there; Unlisted are on a page and do
	// not exist.
	Undocumented, Unlisted []string
}

// row is one of a table: its first cell's code, the words of its second and its last cell, and
// where the last link in it leads.
type row struct{ name, kind, meaning, to string }

// section is the tables below a heading.
type section struct {
	heading string
	rows    []row
}

// sections of a page by their anchors.
func (p *Page) sections() map[string]*section {
	found := map[string]*section{}
	at := &section{}
	if p.text == nil {
		return found
	}
	for node := range p.text.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		switch node.Data {
		case "h1", "h2", "h3":
			at = &section{heading: words(node)}
			found[attribute(node, "id")] = at
		case "tr":
			if r, is := readRow(node); is {
				at.rows = append(at.rows, r)
			}
		}
	}
	return found
}

// readRow reads a row whose first cell has code.
func readRow(tr *html.Node) (row, bool) {
	var cells []*html.Node
	for cell := range tr.ChildNodes() {
		if cell.Type == html.ElementNode && cell.Data == "td" {
			cells = append(cells, cell)
		}
	}
	if len(cells) < 2 {
		return row{}, false
	}
	r := row{kind: words(cells[1]), meaning: words(cells[len(cells)-1])}
	for node := range cells[0].Descendants() {
		if node.Type == html.ElementNode && node.Data == "code" {
			r.name = words(node)
			break
		}
	}
	for node := range cells[len(cells)-1].Descendants() {
		if node.Type == html.ElementNode && node.Data == "a" {
			r.to = attribute(node, "href")
		}
	}
	return r, r.name != ""
}

// withoutLink is a meaning without the words that lead to where its fields are.
var withoutLink = regexp.MustCompile(`\s*Fields( as of|:) \S+\.$`)

// Judge compares a site with what exists.
func (s *Site) Judge(all *Existing) *Verdict {
	v := &Verdict{}
	byPath := map[string]map[string]*section{}
	for _, p := range s.Pages {
		byPath[p.Path] = p.sections()
	}
	for _, kind := range slices.Sorted(maps.Keys(all.Fields)) {
		r := &reader{pages: byPath, listed: map[string]bool{}}
		r.fields("/reference/api/"+kind+".html", "fields", "", nil)
		v.Fields += v.compare(kind, all.Fields[kind], r.listed)
	}
	v.programs(all.Flags, byPath["/reference/flags.html"])
	v.Reasons = v.compare("reasons", all.Reasons, names(byPath["/reference/reasons.html"]))
	v.Metrics = v.compare("metrics", all.Metrics, names(byPath["/reference/metrics.html"]))
	for at, sections := range byPath {
		name, isKind := strings.CutPrefix(at, "/reference/api/")
		name = strings.TrimSuffix(name, ".html")
		if isKind && name != "index" && len(sections) > 0 && all.Fields[name] == nil {
			v.Unlisted = append(v.Unlisted, "page of "+name)
		}
	}
	slices.Sort(v.Undocumented)
	slices.Sort(v.Unlisted)
	return v
}

// compare returns how many exist. Those listed have a meaning, or are false.
func (v *Verdict) compare(what string, exist []string, listed map[string]bool) int {
	known := map[string]bool{}
	for _, name := range exist {
		known[name] = true
		if !listed[name] {
			v.Undocumented = append(v.Undocumented, what+" "+name)
		}
	}
	for name := range listed {
		if !known[name] {
			v.Unlisted = append(v.Unlisted, what+" "+name)
		}
	}
	return len(exist)
}

// programs compares flags, command by command.
func (v *Verdict) programs(flags map[string][]string, sections map[string]*section) {
	listed := map[string]map[string]bool{}
	for _, s := range sections {
		if len(s.rows) > 0 {
			listed[s.heading] = rows(s.rows)
		}
	}
	for _, command := range slices.Sorted(maps.Keys(flags)) {
		v.Flags += v.compare(command, flags[command], listed[command])
		delete(listed, command)
	}
	for command := range listed {
		v.Unlisted = append(v.Unlisted, "flags of "+command)
	}
}

// names of all rows of a page.
func names(sections map[string]*section) map[string]bool {
	found := map[string]bool{}
	for _, s := range sections {
		maps.Copy(found, rows(s.rows))
	}
	return found
}

func rows(of []row) map[string]bool {
	found := map[string]bool{}
	for _, r := range of {
		found[r.name] = found[r.name] || r.meaning != ""
	}
	return found
}

// reader follows the tables of kinds as people do: from a field to where its own fields are.
type reader struct {
	pages  map[string]map[string]*section
	listed map[string]bool
}

// fields notes those of a section. Prefix is the path of the object that they belong to here; seen
// are the sections on the way, which no field leads back to.
func (r *reader) fields(page, anchor, prefix string, seen []string) {
	at := page + "#" + anchor
	s := r.pages[page][anchor]
	if s == nil || slices.Contains(seen, at) {
		return
	}
	for _, field := range s.rows {
		name := field.name
		if prefix != "" {
			name = prefix + "." + name
		}
		r.listed[name] = withoutLink.ReplaceAllString(field.meaning, "") != ""
		to, err := url.Parse(field.to)
		if err != nil || field.to == "" || to.Host != "" || !withoutLink.MatchString(field.meaning) {
			continue
		}
		target := page
		if to.Path != "" {
			target = resolve(page, to.Path)
		}
		r.fields(target, to.Fragment, name+suffix(field.kind), append(slices.Clone(seen), at))
	}
}

// suffix is what stands behind an object's name for the lists and maps around it, by the words that
// say its type.
func suffix(kind string) string {
	first, rest, found := strings.Cut(kind, " of ")
	switch {
	case found && strings.TrimSuffix(first, "s") == "list":
		return "[]" + suffix(rest)
	case found && strings.TrimSuffix(first, "s") == "map":
		return "{}" + suffix(rest)
	}
	return ""
}
