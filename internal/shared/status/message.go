// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
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
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: words.Clean(message)}
}

func yes(kind, reason, message string) metav1.Condition {
	return condition(kind, metav1.ConditionTrue, reason, message)
}

func no(kind, reason, message string) metav1.Condition {
	return condition(kind, metav1.ConditionFalse, reason, message)
}

func only(nodes []Node, keep func(*Node) bool) []Node {
	kept := make([]Node, 0, count(nodes, keep))
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

// uncovered names nodes without an image: first those that report what is no kernel, then those for
// which a mapping's image cannot be named, which is a mistake in the Module, then those whose
// kernel no mapping matches.
func uncovered(bare []Node) string {
	var parts []string
	invalid := func(n *Node) bool { return n.Unmapped.Reason == v1beta1.ReasonInvalidKernelVersion }
	if n := only(bare, invalid); len(n) > 0 {
		parts = append(parts, fmt.Sprintf("%s left out: %s: %s", words.Count(len(n), "node"), namesOf(n), n[0].Unmapped.Message))
	}
	bare = only(bare, func(n *Node) bool { return !invalid(n) })
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

// Turn says why a node's turn has not come; empty: it does not wait for one.
func Turn(m *Module, node string) string {
	if m.Rollout == nil || !m.Rollout.Hold[node] {
		return ""
	}
	return strings.TrimPrefix(progress(m), "; ")
}

// progress says how far a rollout is; empty: nobody waits for a turn. It names no time that passes,
// so that the message stays the same while nothing happens.
func progress(m *Module) string {
	p := m.Rollout
	if p == nil || p.Waiting == 0 {
		return ""
	}
	text := fmt.Sprintf("; rollout: %d of %s %s generation %d", p.Done, words.Count(p.Total, "node"), verb(p.Total, "has", "have"),
		m.Generation)
	if p.Underway > 0 {
		text += fmt.Sprintf(", %d under way", p.Underway)
	}
	if p.Away > 0 {
		text += fmt.Sprintf(", %d waiting but not Ready", p.Away)
	}
	switch {
	case p.Halt == rollout.HaltPaused:
		text += ", paused by spec.rollout.paused"
	case p.Halt == rollout.HaltFailed:
		text += fmt.Sprintf(", paused: %s %s failed (%s)", words.Plural(len(p.Failed), "node"), words.List(p.Failed, maxNames), p.Reason)
	case p.Trial && p.Lost != "":
		text += fmt.Sprintf(", node %s went away with the change before it held it: the others wait until it is back or deleted", p.Lost)
	case p.Trial:
		text += ", the first node must hold the change before the others begin"
	case p.Unavailable >= p.Limit:
		text += fmt.Sprintf(", %d of at most %d unavailable%s", p.Unavailable, p.Limit, failures(p))
	case len(p.Crowded) > 0:
		text += fmt.Sprintf(", %s %s for the operator's --max-unavailable-nodes: nodes of other Modules, or that are not Ready, take all its "+
			"places", words.List(p.Crowded, maxNames), verb(len(p.Crowded), "waits", "wait"))
	}
	if going := len(p.Going); p.Halt == "" && going > 0 && p.Unavailable >= p.Limit {
		text += fmt.Sprintf("; %s, no longer selected, %s a place of maxUnavailable until it is unloaded there",
			words.List(p.Going, maxNames), verb(going, "takes", "take"))
	}
	if out := len(p.Out); p.Halt == "" && out > 0 && p.Unavailable >= p.Limit {
		text += fmt.Sprintf("; %s, told to unload by a taint, %s a place of maxUnavailable until the taint goes",
			words.List(p.Out, maxNames), verb(out, "takes", "take"))
	}
	return text
}

func failures(p *rollout.Plan) string {
	if len(p.Failed) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s failed (%s)", words.List(p.Failed, maxNames), p.Reason)
}

// mass is about too many deselected nodes at once, which may be a mistake.
func mass(m *Module) string {
	p := m.Rollout
	what := fmt.Sprintf("%s %s no longer selected or without a mapping", words.Count(len(p.Mass), "node"), verb(len(p.Mass), "is", "are"))
	restore := "the labels or the mapping"
	if keys := askingOf(m); len(keys) > 0 {
		what = fmt.Sprintf("%s %s no longer selected, without a mapping, or told to unload by the %s %s",
			words.Count(len(p.Mass), "node"), verb(len(p.Mass), "is", "are"), words.Plural(len(keys), "taint"), words.List(keys, maxNames))
		if len(p.Out) > 0 {
			what += fmt.Sprintf(", and %s %s told so before", words.List(p.Out, maxNames), verb(len(p.Out), "was", "were"))
		}
		restore = "the labels or the mapping, remove the taints"
	}
	if !m.Loads {
		what = fmt.Sprintf("The Module no longer has a moduleLoader, and its kernel module is live on %s", words.Count(len(p.Mass), "node"))
		restore = "spec.moduleLoader"
	}
	text := fmt.Sprintf("%s, but at most %d may be unavailable at a time, so nothing is unloaded on %s; "+
		"restore %s, or confirm by setting the annotation %s to the current time (RFC 3339)",
		what, p.Limit, words.List(p.Mass, maxNames), restore, v1beta1.ConfirmDeselectionAnnotation)
	if !p.Confirmation.IsZero() {
		text += fmt.Sprintf("; the confirmation of %s does not count: it is not from the last hour by the operator's clock",
			p.Confirmation.UTC().Format(time.RFC3339))
	}
	return text
}

// askingOf are the keys of the taints by which nodes that wait for a confirmation are told to
// unload, in order.
func askingOf(m *Module) []string {
	var keys []string
	for i := range m.Nodes {
		if n := &m.Nodes[i]; n.Tainted != "" && slices.Contains(m.Rollout.Mass, n.Name) && !slices.Contains(keys, n.Tainted) {
			keys = append(keys, n.Tainted)
		}
	}
	slices.Sort(keys)
	return keys
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// mixture names the first image that brought different content to nodes that should have got the
// same: its tag was moved between deliveries. Empty: there is none. nodes are in order.
func mixture(nodes []Node) string {
	type brought struct {
		image   string
		digests []string
		names   map[string][]string
	}
	bySame := map[string]*brought{}
	var first *brought
	for i := range nodes {
		c := nodes[i].Content
		if c == nil {
			continue
		}
		b := bySame[c.Same]
		if b == nil {
			b = &brought{image: c.Image, names: map[string][]string{}}
			bySame[c.Same] = b
		}
		if b.names[c.Digest] == nil {
			b.digests = append(b.digests, c.Digest)
		}
		b.names[c.Digest] = append(b.names[c.Digest], nodes[i].Name)
		if len(b.digests) > 1 && (first == nil || b.image < first.image) {
			first = b
		}
	}
	if first == nil {
		return ""
	}
	parts := make([]string, 0, len(first.digests))
	for _, d := range first.digests {
		parts = append(parts, fmt.Sprintf("%s on %s", d, words.List(first.names[d], maxNames)))
	}
	return fmt.Sprintf("%s has different content on different nodes: %s", first.image, strings.Join(parts, ", "))
}
