// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drover-project/drover/images/licence"
)

// intro is the page up to its first table.
const intro = `# Dependencies and their licences

What is in the programs and images that people install, and under which licence. ` + "`make manifests`" + ` writes this page from the sources, and
fails if a licence is not recognised or not allowed; ` + "`make verify`" + ` compares. The same licences are in each image's
[SBOM](../guide/air-gapped.md#what-is-in-an-image).

Drover is under Apache-2.0.

## Go modules

`

// render makes the page.
func render(modules []*linkedModule) string {
	var out strings.Builder
	out.WriteString(intro)
	all := map[string]bool{}
	counts := map[string]int{}
	for _, m := range modules {
		for _, program := range m.Programs {
			all[program] = true
		}
		counts[m.Licence]++
	}
	fmt.Fprintf(&out, "%d modules are linked into these programs:\n\n", len(modules))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&out, "- `%s`\n", name)
	}
	out.WriteString("\n")
	out.WriteString("| licence | modules |\n|---|---|\n")
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&out, "| %s | %d |\n", id, counts[id])
	}
	out.WriteString("\n| module | version | licence | in |\n|---|---|---|---|\n")
	fmt.Fprintf(&out, "| Go's standard library | the compiler's | %s | all |\n", licence.Stdlib)
	for _, m := range modules {
		in := "all but " + codes(without(all, m.Programs))
		switch missing := len(all) - len(m.Programs); {
		case missing == 0:
			in = "all"
		case missing > len(m.Programs):
			in = codes(m.Programs)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", m.Path, m.Version, m.Licence, in)
	}
	out.WriteString("\n## Packages of Debian\n\n" +
		"The agent's image also holds kmod, and the libraries that kmod is linked with in the release of Debian that the image is\n" +
		"built on: some of these. Their texts are in the image, in `/usr/share/doc`. No other image holds anything but programs of ours.\n\n" +
		"| package | licence of what is in the image | for |\n|---|---|---|\n")
	for _, p := range licence.Debian {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", p.Name, p.Licence, p.For)
	}
	return out.String()
}

// without are the names of all that are not in some.
func without(all map[string]bool, some []string) []string {
	var rest []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(some, name) {
			rest = append(rest, name)
		}
	}
	return rest
}

func codes(names []string) string {
	return "`" + strings.Join(names, "`, `") + "`"
}
