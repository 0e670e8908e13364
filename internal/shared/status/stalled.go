// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/words"
)

// stalled reports whether nothing that is missing will come by itself. One node that is on its way,
// or away, is reason enough to wait. A deleted Module never stalls, nor one that Drover only
// watches.
func stalled(m *Module, ready *metav1.Condition) bool {
	if ready.Status == metav1.ConditionTrue || m.Deleting || m.ReadOnly != nil || m.Paused {
		return false
	}
	missing := false
	for i := range m.Nodes {
		n := &m.Nodes[i]
		p, open := Why(m, n)
		switch {
		case open && !reasons.Final(p.Reason) && !waitsInVain(m, &p) && !abandoned(n, &p):
			return false
		case !open && n.Usable && !n.PluginReady && (m.HasPlugin || m.HasDRA) && m.PluginProblem == nil:
			return false
		}
		missing = missing || open
	}
	return missing || reasons.Final(ready.Reason)
}

// waitsInVain is true for a node that waits for its turn behind one with a final failure.
func waitsInVain(m *Module, p *reasons.Problem) bool {
	return p.Reason == v1beta1.ReasonRollingOut && m.Rollout != nil && m.Rollout.Halt == rollout.HaltFailed
}

// nowhere is the condition of a Module without a node that can have it.
func nowhere(m *Module, kind string) metav1.Condition {
	if len(m.Unsupported) == 0 {
		return no(kind, v1beta1.ReasonNoNodes, noNodes)
	}
	nodes := slices.SortedFunc(slices.Values(m.Unsupported), func(a, b Unsupported) int { return cmp.Compare(a.Name, b.Name) })
	names := make([]string, 0, len(nodes))
	for _, n := range nodes {
		names = append(names, n.Name+" "+n.Why)
	}
	return no(kind, v1beta1.ReasonUnsupportedNode, fmt.Sprintf("%s: %s", noNodes, words.List(names, maxNames)))
}

// Told are the conditions whose changes become events: Stalled only repeats another one.
func Told(conditions []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == v1beta1.ConditionStalled })
}
