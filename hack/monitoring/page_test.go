// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

const intro = `# Alerts

The component ` + "`config/monitoring`" + ` ([how to turn it on](../guide/watch.md)) has these alerts. Each is a class of faults that need an
administrator. Labels: ` + "`severity`" + `, ` + "`component=\"drover\"`" + `, and the Module's ` + "`namespace` and `name`" + `; the value is the number of nodes.
This page, the rules and the dashboard are made of the rows in ` + "`hack/monitoring`" + `: a test compares them, and that every reason which
[needs attention](reasons.md#needs-attention) is in exactly one class.

` + "`make alerts`" + ` makes each fault on a fleet of hollow nodes under a real Prometheus, and takes the time until the alert fires: at most a
minute. Then it undoes the fault, and the alert must end. Nothing may fire while a fleet that is well is upgraded and rebooted.

`

// page is docs/reference/alerts.md.
func page(t *testing.T) string {
	t.Helper()
	known := reasonsOf(t)
	var b strings.Builder
	b.WriteString(intro + "| alert | severity | for | what is so |\n|---|---|---|---|\n")
	for _, a := range Rows() {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s | %s |\n", a.Name, strings.ToLower(a.Name), a.Severity, a.For, a.Summary)
	}
	b.WriteString("\n## Each of them\n")
	for _, a := range Rows() {
		fmt.Fprintf(&b, "\n### %s\n\n", a.Name)
		if a.Next != "" {
			fmt.Fprintf(&b, "Next step: %s.\n\n", a.Next)
		}
		if a.Unproved != "" {
			fmt.Fprintf(&b, "`make alerts` does not prove it: %s.\n\n", a.Unproved)
		}
		fmt.Fprintf(&b, "```promql\n%s\n```\n", a.Expression())
		if a.OfModule() {
			b.WriteString("\n| reason | meaning | next step |\n|---|---|---|\n")
		}
		for _, name := range a.Reasons {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, known[name].meaning, known[name].next)
		}
	}
	b.WriteString("\n## Reasons without an alert\n\n| reason | why |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(Silent)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, Silent[name])
	}
	return b.String()
}
