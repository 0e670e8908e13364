// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// Problems are what the controller of one part of a Module last said, by node; see
// [v1beta1.ModuleProblem].
func Problems(m *v1beta1.Module, part v1beta1.ProblemPart) map[string]reasons.Problem {
	found := map[string]reasons.Problem{}
	for _, p := range m.Status.Problems {
		if p.Part == part {
			found[p.Node] = reasons.Problem{Reason: p.Reason, Message: p.Message}
		}
	}
	return found
}

// Problem is what the controller of one part says of the Module as a whole, or nil.
func Problem(m *v1beta1.Module, part v1beta1.ProblemPart) *reasons.Problem {
	return pick(Problems(m, part), v1beta1.AllNodes)
}

// Deliveries tells what keeps the image from a node, given the problems of carrier pods by node.
// What the operator says is newer than a pod that is about to go.
func Deliveries(m *v1beta1.Module, carriers map[string]reasons.Problem) func(node string) *reasons.Problem {
	told := Problems(m, v1beta1.ProblemDeliveries)
	return func(node string) *reasons.Problem {
		for _, p := range []*reasons.Problem{pick(told, node), pick(carriers, node)} {
			if p != nil {
				return p
			}
		}
		return pick(told, v1beta1.AllNodes)
	}
}

func pick(problems map[string]reasons.Problem, node string) *reasons.Problem {
	if p, ok := problems[node]; ok {
		return &p
	}
	return nil
}
