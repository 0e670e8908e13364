// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// value is a property of the schema of values: a section with parts, or one with a default.
type value struct {
	// path is where it stands, such as operator.replicas; empty for the root.
	path, name, description string
	// fallback is its default, in JSON; empty for a section.
	fallback string
	parts    []*value
}

// readSchema reads the properties in the order in which the file has them.
func readSchema(path string) (*value, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	// JSON is YAML, whose reader keeps the order.
	document, err := yaml.Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	root := &value{}
	if err := root.read(document.YNode()); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	return root, nil
}

// field returns what a mapping has under a key, or nil.
func field(node *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// read takes over what stands in a node of the schema. Properties with neither a default nor
// properties are Helm's own, and left out.
func (v *value) read(node *yaml.Node) error {
	if text := field(node, "description"); text != nil {
		v.description = text.Value
	}
	if fallback := field(node, "default"); fallback != nil {
		var decoded any
		if err := fallback.Decode(&decoded); err != nil {
			return fmt.Errorf("%s: default: %w", v.path, err)
		}
		text, err := json.Marshal(decoded)
		if err != nil {
			return fmt.Errorf("%s: default: %w", v.path, err)
		}
		v.fallback = string(text)
		return nil
	}
	properties := field(node, "properties")
	if properties == nil {
		return nil
	}
	for i := 0; i+1 < len(properties.Content); i += 2 {
		name := properties.Content[i].Value
		part := &value{name: name, path: strings.TrimPrefix(v.path+"."+name, ".")}
		if err := part.read(properties.Content[i+1]); err != nil {
			return err
		}
		if part.fallback == "" && part.parts == nil {
			continue
		}
		if part.description == "" {
			return fmt.Errorf("%s has no description", part.path)
		}
		v.parts = append(v.parts, part)
	}
	return nil
}

// values writes values.yaml.
func (v *value) values(w *strings.Builder) error {
	w.WriteString("# Generated from values.schema.json by hack/chart: make manifests\n")
	return v.section(w, "")
}

// commentWidth is how wide a comment's text may be.
const commentWidth = 100

func (v *value) section(w *strings.Builder, indent string) error {
	for _, p := range v.parts {
		if indent == "" {
			w.WriteString("\n")
		}
		for _, line := range wrap(p.description, commentWidth-len(indent)) {
			fmt.Fprintf(w, "%s# %s\n", indent, line)
		}
		if p.fallback == "" {
			fmt.Fprintf(w, "%s%s:\n", indent, p.name)
			if err := p.section(w, indent+"  "); err != nil {
				return err
			}
			continue
		}
		text, err := sigsyaml.JSONToYAML([]byte(p.fallback))
		if err != nil {
			return fmt.Errorf("%s: default: %w", p.path, err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if block := p.fallback[0] == '{' || p.fallback[0] == '['; block && len(p.fallback) > len("{}") {
			fmt.Fprintf(w, "%s%s:\n%s  %s\n", indent, p.name, indent, strings.Join(lines, "\n"+indent+"  "))
			continue
		}
		fmt.Fprintf(w, "%s%s: %s\n", indent, p.name, lines[0])
	}
	return nil
}

// wrap breaks a text into lines between words.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

const pageHead = `# Values of the Helm chart

Generated from ` + "`charts/drover/values.schema.json`" + ` by ` + "`make manifests`" + `. Helm refuses a value that is not
listed here, or that has the wrong type. [Install](../guide/install.md#with-helm) says how to use the
chart.
`

// page writes the reference page: a table for each section of the top level, after one for the
// values that are in no section.
func (v *value) page(w *strings.Builder) {
	w.WriteString(pageHead)
	single := &value{name: "General", description: "Values that are in no section"}
	sections := []*value{single}
	for _, p := range v.parts {
		if p.fallback == "" {
			sections = append(sections, p)
		} else {
			single.parts = append(single.parts, p)
		}
	}
	for _, s := range sections {
		title := "`" + s.path + "`"
		if s.path == "" {
			title = s.name
		}
		fmt.Fprintf(w, "\n## %s\n", title)
		for _, line := range wrap(s.description+".", commentWidth) {
			fmt.Fprintf(w, "%s\n", line)
		}
		w.WriteString("\n| value | meaning | default |\n|---|---|---|\n")
		s.rows(w, "")
	}
}

// rows writes a row for each value in a section; context is what the sections around it say.
func (v *value) rows(w *strings.Builder, context string) {
	for _, p := range v.parts {
		if p.fallback == "" {
			p.rows(w, strings.TrimPrefix(context+"; "+p.description, "; "))
			continue
		}
		meaning := p.description
		if context != "" {
			meaning = context + ": " + lowerFirst(meaning)
		}
		fmt.Fprintf(w, "| `%s` | %s | `%s` |\n", p.path, strings.ReplaceAll(meaning, "|", `\|`), cmp.Or(p.fallback, "none"))
	}
}

// lowerFirst is for a sentence that follows a colon; a name in code stays as it is.
func lowerFirst(text string) string { return strings.ToLower(text[:1]) + text[1:] }
