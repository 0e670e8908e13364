// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"slices"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/reasons"
)

// Why is what stands between the Module and one of its nodes, in the words of the condition Loaded; false: nothing does.
// Nodes that neither want the Module nor have anything of it are fine as they are.
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

// Cohort are nodes with the same cause.
type Cohort struct {
	reasons.Problem
	// Nodes by name.
	Nodes []string
}

// Cohorts groups a Module's nodes by what stands in their way, the worst first, and tells which nodes are fine: live, as the
// Module asks for it now.
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
	for _, c := range group(troubled, func(n *Node) reasons.Problem { p, _ := Why(m, n); return p }) {
		one := Cohort{Problem: reasons.Problem{Reason: c.reason, Message: c.quote}}
		for i := range c.nodes {
			one.Nodes = append(one.Nodes, c.nodes[i].Name)
		}
		cohorts = append(cohorts, one)
	}
	return cohorts, fine
}
