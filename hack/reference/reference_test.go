// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const cobraHelp = `Checks every step, in order,
and shows where it stops. It changes
nothing.

Before you begin: look.

Usage:
  drover explain MODULE [flags]

Flags:
  -h, --help              help for explain
  -o, --output string     how it is printed: "json"
                          or "yaml" (default "json")
      --wait              wait for it

Global Flags:
      --context string   The name of the context

Use "drover explain [command] --help" for more information about a command.
`

const goHelp = "Usage of operator:\n  -agent-image string\n    \timage of the agent (required)\n" +
	"  -leader-elect\n    \telect a leader (default true)\n  -v value\n    \tlevel\n"

func TestParseHelp(t *testing.T) {
	for name, tc := range map[string]struct {
		given, says string
		short       string
		flags       []programFlag
		commands    []string
	}{
		"cobra": {given: cobraHelp, short: "Checks every step, in order, and shows where it stops.", flags: []programFlag{
			{Name: "output", Short: "o", Type: "string", Default: "json", Meaning: `how it is printed: "json" or "yaml"`},
			{Name: "wait", Meaning: "wait for it"},
		}},
		"package flag": {given: goHelp, flags: []programFlag{
			{Name: "agent-image", Type: "string", Meaning: "image of the agent (required)"},
			{Name: "leader-elect", Default: "true", Meaning: "elect a leader"},
			{Name: "v", Type: "value", Meaning: "level"},
		}},
		"commands": {
			given: "Look\n\nAvailable Commands:\n  help     Help\n  run      Run it\n", short: "Look", commands: []string{"run"},
		},
		"no help":                   {given: "moo\n", says: "no flag and no command"},
		"a line that is not a flag": {given: "Say\n\nFlags:\nno flag at all\n", says: "a line that is not a flag"},
		"a value of two words": {
			given: "Say\n\nFlags:\n      --image   a name\n      --kernel uname -r   a version\n", says: "a flag whose value is not one word",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, commands, err := parseHelp(tc.given)
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("error %v, want %q", err, tc.says)
			}
			if err != nil {
				return
			}
			if c.Short != tc.short {
				t.Errorf("it is %q, want %q", c.Short, tc.short)
			}
			if diff := cmp.Diff(tc.flags, c.Flags); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.commands, commands); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// crd has an inner object twice, a rule, a list and a map.
const crd = `
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        description: Thing is one.
        properties:
          kind: {type: string}
          spec:
            description: spec is the wish.
            required: [size]
            properties:
              size: {type: integer, description: "size in <b> | more", minimum: 1, default: 3}
              first: &first
                description: first of two.
                properties:
                  a: {type: string, description: a}
                  b: {type: string, description: b}
                  c: {type: string, description: c}
                  d: {type: string, description: d, x-kubernetes-validations: [{rule: self == oldSelf}]}
              second: {type: array, items: *first, description: second of two.}
              bare: {type: string}
              named: {type: object, description: by name., additionalProperties: {type: string}}
`

func TestPagesOfKinds(t *testing.T) {
	kinds, err := parseKinds(crd)
	if err != nil {
		t.Fatal(err)
	}
	if err := name(kinds); err != nil {
		t.Fatal(err)
	}
	pages, undocumented, err := pagesOf(kinds)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"thing.md spec.bare"}, undocumented); diff != "" {
		t.Error("undocumented:", diff)
	}
	for _, line := range []string{
		"# Thing",
		"| `spec` | anything |  | spec is the wish. Fields: [`spec`](#spec). |",
		"| `size` | integer | required; default `3`; at least 1 | size in &lt;b&gt; \\| more |",
		"| `first` | anything |  | first of two. Fields: [`spec.first`](#specfirst). |",
		"| `second` | list of anything |  | second of two. Fields as of [`spec.first`](#specfirst). |",
		"| `d` | string | immutable | d |",
		"| `named` | map of strings |  | by name. |",
	} {
		if !strings.Contains(pages["thing.md"], "\n"+line+"\n") && !strings.HasPrefix(pages["thing.md"], line+"\n") {
			t.Errorf("no line %s in\n%s", line, pages["thing.md"])
		}
	}
	want := []string{"spec", "spec.bare", "spec.first", "spec.first.a", "spec.first.b", "spec.first.c", "spec.first.d", "spec.named",
		"spec.second", "spec.second[].a", "spec.second[].b", "spec.second[].c", "spec.second[].d", "spec.size"}
	if diff := cmp.Diff(want, paths(kinds[0].schema, "")); diff != "" {
		t.Error("paths:", diff)
	}
}

func TestText(t *testing.T) {
	for given, want := range map[string]string{
		"two\n  lines":       "two lines",
		"a `b|c` d":          "a `b\\|c` d",
		"one ` alone":        "one \\` alone",
		"<node> {{x}} *y* _": "&lt;node&gt; &#123;&#123;x&#125;&#125; \\*y\\* \\_",
	} {
		if got := text(given); got != want {
			t.Errorf("text(%q) = %q, want %q", given, got, want)
		}
	}
}
