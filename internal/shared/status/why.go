// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"slices"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// Why is what stands between the Module and one of its nodes, in the words of the condition Loaded;
// false: nothing does.
func Why(m *Module, n *Node) (reasons.Problem, bool) {
	switch {
	case m.Deleting || !m.Loads:
		if !n.Pending {
			return reasons.Problem{}, false
		}
		return unloadProblem(m, n), true
	case n.Wanted && !n.Available:
		p := m.loadProblem(n)
		if m.Paused && reasons.OnItsWay(p.Reason) {
			p.Reason = v1beta1.ReasonPaused
		}
		return p, true
	case !n.Wanted && n.Pending:
		return unloadProblem(m, n), true
	}
	return reasons.Problem{}, false
}

// Cohorts groups a Module's nodes by what stands in their way, the worst first. Fine nodes have
// what the Module asks for now.
func Cohorts(m *Module) (cohorts []Cohort, fine []string) {
	nodes := slices.SortedFunc(slices.Values(m.Nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	var troubled []Node
	for i := range nodes {
		switch _, open := Why(m, &nodes[i]); {
		case open:
			troubled = append(troubled, nodes[i])
		case nodes[i].Wanted:
			fine = append(fine, nodes[i].Name)
		}
	}
	return group(troubled, func(n *Node) reasons.Problem { p, _ := Why(m, n); return p }), fine
}
