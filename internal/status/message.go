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
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/words"
)

const (
	// maxNames is how many nodes a message names per reason.
	maxNames = 3
	// maxQuote is how much of a node's own message is quoted, in bytes.
	maxQuote = 500
	// maxKernelLine is how much of the kernel's last line is quoted, in bytes.
	maxKernelLine = 160

	noNodes = "The selector chooses no node on which kernel modules can be managed"
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

// cohort are nodes with the same reason.
type cohort struct {
	reason string
	quote  string
	nodes  []Node
}

// group sorts nodes by reason: failures before what is on its way, the most frequent first, then by name.
func group(nodes []Node, problem func(*Node) reasons.Problem) []cohort {
	byReason := map[string]*cohort{}
	for i := range nodes {
		p := problem(&nodes[i])
		c := byReason[p.Reason]
		if c == nil {
			c = &cohort{reason: p.Reason, quote: p.Message}
			byReason[p.Reason] = c
		}
		c.nodes = append(c.nodes, nodes[i])
	}
	cohorts := make([]cohort, 0, len(byReason))
	for _, c := range byReason {
		cohorts = append(cohorts, *c)
	}
	slices.SortFunc(cohorts, func(a, b cohort) int {
		return cmp.Or(
			cmp.Compare(reasons.Rank(a.reason), reasons.Rank(b.reason)),
			cmp.Compare(len(b.nodes), len(a.nodes)),
			cmp.Compare(a.reason, b.reason),
		)
	})
	return cohorts
}

func describe(cohorts []cohort) string {
	parts := make([]string, 0, len(cohorts))
	for _, c := range cohorts {
		parts = append(parts, fmt.Sprintf("%s on %s%s%s", c.reason, namesOf(c.nodes), hint(c.quote), kernelLine(c)))
	}
	return strings.Join(parts, "; ")
}

// uncovered tells of nodes without an image: those for which a mapping's image cannot be named, since that is a mistake
// in the Module, and those whose kernel no mapping matches.
func uncovered(bare []Node) string {
	var parts []string
	if n := only(bare, func(n *Node) bool { return n.Unmapped.Message != "" }); len(n) > 0 {
		parts = append(parts, fmt.Sprintf("The image for %s cannot be named%s; nodes: %s", kernelsOf(n), hint(n[0].Unmapped.Message), namesOf(n)))
	}
	if n := only(bare, func(n *Node) bool { return n.Unmapped.Message == "" }); len(n) > 0 {
		parts = append(parts, fmt.Sprintf("No image for %s of %s: %s", kernelsOf(n), words.Count(len(n), "node"), namesOf(n)))
	}
	return strings.Join(parts, "; ")
}

func kernelsOf(nodes []Node) string {
	kernels := map[string]bool{}
	for i := range nodes {
		kernels[nodes[i].Kernel] = true
	}
	return fmt.Sprintf("%s (%s)", words.Count(len(kernels), "kernel"), words.List(sortedKeys(kernels), maxNames))
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

func sortedKeys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// shorten takes the first line of a node's message; the rest is for the node's own object.
func shorten(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return words.Clip(text, maxQuote)
}

// kernelLine is the last line of the kernel's own about a failure: the one that says what came of it. Lines of other reasons are no kernel's, and
// may change while the reason stands.
func kernelLine(c cohort) string {
	if c.reason == v1beta1.ReasonNotUsable || c.reason == v1beta1.ReasonInUse {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(c.quote), "\n")
	if len(lines) < 2 {
		return ""
	}
	return " (kernel: " + words.Clip(lines[len(lines)-1], maxKernelLine) + ")"
}
