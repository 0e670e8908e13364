// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// alike is how many fields an object must have, inner ones included, to be described once for all
// the places where it stands.
const alike = 4

// place is where an object is described.
type place struct{ file, path string }

// writer writes the pages of kinds. It knows what it has described before.
type writer struct {
	described map[string]place
	// file and anchors are those of the page under way.
	file    string
	anchors map[string]string
	out     strings.Builder
	// undocumented are fields without a description.
	undocumented []string
}

// pagesOf returns the page of each kind, by the file's name, and the fields without a description.
func pagesOf(kinds []kind) (pages map[string]string, undocumented []string, err error) {
	w := &writer{described: map[string]place{}}
	pages = map[string]string{"README.md": index(kinds)}
	for _, k := range kinds {
		w.file, w.anchors = k.File, map[string]string{}
		w.out.Reset()
		w.head(k)
		if err := w.object(k.schema, ""); err != nil {
			return nil, nil, fmt.Errorf("page of %s: %w", k.Kind, err)
		}
		pages[k.File] = w.out.String()
	}
	return pages, w.undocumented, nil
}

func index(kinds []kind) string {
	var b strings.Builder
	b.WriteString("# Kinds\n\n" + wrap("Every field of every kind that Drover and its device operators serve, from the "+
		"CustomResourceDefinitions in `config`. `make manifests` writes these pages.") +
		"\n\n| kind | group and version | what it is |\n|---|---|---|\n")
	for _, k := range kinds {
		fmt.Fprintf(&b, "| [%s](%s) | `%s/%s` | %s |\n", k.Kind, k.File, k.Group, k.Version, text(firstSentence(k.schema.Description)))
	}
	return b.String()
}

// firstSentence of a description.
func firstSentence(description string) string {
	line := strings.Join(strings.Fields(description), " ")
	sentence, _, found := strings.Cut(line, ". ")
	if found {
		return sentence + "."
	}
	return line
}

// title is a page's, which tells versions and groups apart.
func (k kind) title() string {
	if k.File == strings.ToLower(k.Kind)+".md" {
		return k.Kind
	}
	return fmt.Sprintf("%s (%s/%s)", k.Kind, k.Group, k.Version)
}

func (w *writer) head(k kind) {
	scope := "not of a namespace"
	if k.Namespaced {
		scope = "of a namespace"
	}
	var names []string
	for _, name := range k.Names {
		names = append(names, code(name))
	}
	fmt.Fprintf(&w.out, "# %s\n\n%s\n\n", k.title(), wrap(text(k.schema.Description)))
	fmt.Fprintf(&w.out, "| | |\n|---|---|\n| `apiVersion` | `%s/%s` |\n| `kind` | `%s` |\n| for kubectl | %s |\n| scope | %s |\n",
		k.Group, k.Version, k.Kind, strings.Join(names, ", "), scope)
	if !k.Served || !k.Storage {
		fmt.Fprintf(&w.out, "| version | %s |\n", map[bool]string{true: "served, not stored", false: "not served"}[k.Served])
	}
	fmt.Fprintf(&w.out, "\n%s\n", wrap("`[]` stands for each item of a list, `{}` for each value of a map. "+
		"Made of the kind's definition: `make manifests` writes this page."))
}

// object describes the fields of an object in a section, and then the objects in it that are
// described nowhere else.
func (w *writer) object(s *schema, path string) error {
	heading := "`" + path + "`"
	if path == "" {
		heading = "Fields"
	}
	if other, taken := w.anchors[anchor(heading)]; taken {
		return fmt.Errorf("%s and %s have the same anchor", other, path)
	}
	w.anchors[anchor(heading)] = path
	fmt.Fprintf(&w.out, "\n## %s\n\n", heading)
	w.rules(s)
	w.out.WriteString("| field | type | rules | meaning |\n|---|---|---|---|\n")
	type section struct {
		object *schema
		path   string
	}
	var next []section
	for _, name := range own(s, path == "") {
		field := s.Properties[name]
		at := join(path, name)
		meaning := text(field.Description)
		if meaning == "" {
			w.undocumented = append(w.undocumented, w.file+" "+at)
		}
		if object, suffix := inner(field); object != nil {
			link, fresh, err := w.link(object, at+suffix)
			if err != nil {
				return err
			}
			if fresh {
				next = append(next, section{object, at + suffix})
			}
			meaning += " " + link
		}
		fmt.Fprintf(&w.out, "| `%s` | %s | %s | %s |\n", name, typeOf(field),
			strings.Join(rulesOf(field, slices.Contains(s.Required, name)), "; "), strings.TrimSpace(meaning))
	}
	for _, n := range next {
		if err := w.object(n.object, n.path); err != nil {
			return err
		}
	}
	return nil
}

// rules of an object as a whole stand before its fields.
func (w *writer) rules(s *schema) {
	var said []string
	for _, v := range s.Validations {
		switch {
		case v.Message != "":
			said = append(said, text(v.Message))
		case !immutable(s):
			said = append(said, code(v.Rule))
		}
	}
	for _, sentence := range said {
		w.out.WriteString(strings.ReplaceAll(wrap("- "+sentence), "\n", "\n  ") + "\n")
	}
	if len(said) > 0 {
		w.out.WriteString("\n")
	}
}

// link leads to where an object is described, which is fresh if that is still to be written.
func (w *writer) link(object *schema, path string) (link string, fresh bool, err error) {
	to, err := w.place(object, path)
	if err != nil {
		return "", false, err
	}
	target := "#" + anchor(to.path)
	if to.file != w.file {
		target = to.file + target
	}
	word := "Fields:"
	if to.path != path || to.file != w.file {
		word = "Fields as of"
	}
	return fmt.Sprintf("%s [`%s`](%s).", word, to.path, target), word == "Fields:", nil
}

// place finds where an object is described: here, if it is small or new.
func (w *writer) place(object *schema, path string) (place, error) {
	here := place{w.file, path}
	if len(paths(object, "x")) < alike {
		return here, nil
	}
	key, err := shape(object)
	if err != nil {
		return here, err
	}
	if first, known := w.described[key]; known {
		return first, nil
	}
	w.described[key] = here
	return here, nil
}
