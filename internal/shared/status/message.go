// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

const (
	// maxNames is how many nodes a message names per reason.
	maxNames = 3
	// maxQuote is how much of a node's own message is quoted, in bytes.
	maxQuote = 500
	// maxKernelLine is how much of the kernel's last line is quoted, in bytes.
	maxKernelLine = 160

	noNodes = "spec.selector matches no node that can load kernel modules"
)

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func yes(kind, reason, message string) metav1.Condition {
	return condition(kind, metav1.ConditionTrue, reason, message)
}

func no(kind, reason, message string) metav1.Condition {
	return condition(kind, metav1.ConditionFalse, reason, message)
}

func only(nodes []Node, keep func(*Node) bool) []Node {
	var kept []Node
	for i := range nodes {
		if keep(&nodes[i]) {
			kept = append(kept, nodes[i])
		}
	}
	return kept
}

func count(nodes []Node, when func(*Node) bool) int32 {
	var n int32
	for i := range nodes {
		if when(&nodes[i]) {
			n++
		}
	}
	return n
}

// Cohort are nodes with the same reason.
type Cohort struct {
	reasons.Problem
	// Nodes by name.
	Nodes []string
}

// group sorts nodes by reason: failures before what is on its way, the most frequent first.
func group(nodes []Node, problem func(*Node) reasons.Problem) []Cohort {
	var cohorts []Cohort
	for i := range nodes {
		p := problem(&nodes[i])
		at := slices.IndexFunc(cohorts, func(c Cohort) bool { return c.Reason == p.Reason })
		if at < 0 {
			at, cohorts = len(cohorts), append(cohorts, Cohort{Problem: p})
		}
		cohorts[at].Nodes = append(cohorts[at].Nodes, nodes[i].Name)
	}
	slices.SortFunc(cohorts, func(a, b Cohort) int {
		return cmp.Or(
			cmp.Compare(reasons.Rank(a.Reason), reasons.Rank(b.Reason)),
			cmp.Compare(len(b.Nodes), len(a.Nodes)),
			cmp.Compare(a.Reason, b.Reason),
		)
	})
	return cohorts
}

func describe(cohorts []Cohort) string {
	parts := make([]string, 0, len(cohorts))
	for _, c := range cohorts {
		parts = append(parts, fmt.Sprintf("%s on %s%s%s", c.Reason, words.List(c.Nodes, maxNames), hint(c.Message), kernelLine(c)))
	}
	return strings.Join(parts, "; ")
}

// uncovered names nodes without an image: first those for which a mapping's image cannot be named,
// which is a mistake in the Module, then those whose kernel no mapping matches.
func uncovered(bare []Node) string {
	var parts []string
	if n := only(bare, func(n *Node) bool { return n.Unmapped.Message != "" }); len(n) > 0 {
		parts = append(parts, fmt.Sprintf("Drover cannot name the image for %s%s; nodes: %s", kernelsOf(n), hint(n[0].Unmapped.Message),
			namesOf(n)))
	}
	if n := only(bare, func(n *Node) bool { return n.Unmapped.Message == "" }); len(n) > 0 {
		parts = append(parts, fmt.Sprintf("No kernel mapping matches %s of %s: %s", kernelsOf(n), words.Count(len(n), "node"), namesOf(n)))
	}
	return strings.Join(parts, "; ")
}

func kernelsOf(nodes []Node) string {
	kernels := map[string]bool{}
	for i := range nodes {
		kernels[nodes[i].Kernel] = true
	}
	return fmt.Sprintf("%s (%s)", words.Count(len(kernels), "kernel"), words.List(slices.Sorted(maps.Keys(kernels)), maxNames))
}

func hint(quote string) string {
	if quote == "" {
		return ""
	}
	return ": " + shorten(quote)
}

func namesOf(nodes []Node) string {
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	return words.List(names, maxNames)
}

// shorten takes the first line of a node's message. Of a long one it keeps both ends: what failed
// is at the beginning, and why at the end.
func shorten(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return words.Clip(text, maxQuote)
}

// kernelLine is the kernel's last line about a failure. For some reasons, further lines are not the
// kernel's and may change.
func kernelLine(c Cohort) string {
	if c.Reason == v1beta1.ReasonNotUsable || c.Reason == v1beta1.ReasonInUse {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(c.Message), "\n")
	if len(lines) < 2 {
		return ""
	}
	return " (kernel: " + words.Clip(lines[len(lines)-1], maxKernelLine) + ")"
}
