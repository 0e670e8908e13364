// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
	"github.com/drover-project/drover/internal/shared/strikes"
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

// refused is why the API server lets nobody change the Module; nil: it does.
func refused(m *v1beta1.Module) *reasons.Problem {
	if p := Problem(m, v1beta1.ProblemDeliveries); p != nil && p.Reason == v1beta1.ReasonWriteRefused {
		return p
	}
	return nil
}

// Deliveries tells what keeps the image from a node, given the problems of carrier pods by node.
// What the operator says is newer than a pod that is about to go.
func Deliveries(m *v1beta1.Module, carriers map[string]reasons.Problem) func(node string) *reasons.Problem {
	told := Problems(m, v1beta1.ProblemDeliveries)
	return func(node string) *reasons.Problem {
		return cmp.Or(pick(told, node), pick(carriers, node), pick(told, v1beta1.AllNodes))
	}
}

func pick(problems map[string]reasons.Problem, node string) *reasons.Problem {
	if p, ok := problems[node]; ok {
		found := p // what is returned is allocated, and most nodes have no problem
		return &found
	}
	return nil
}

// Held are a Module's deliveries that go to no further node.
type Held struct {
	module types.NamespacedName
	by     map[string]strikes.Strike
}

// Judge comes to the same verdict as the controller that gives orders: from the same reports.
func Judge(module *v1beta1.Module, nodes []*corev1.Node, configs map[string]*v1beta1.NodeModulesConfig) Held {
	var fleet strikes.Fleet
	for _, node := range nodes {
		if config := configs[node.Name]; config != nil {
			fleet.Add(config)
		}
	}
	key := types.NamespacedName{Namespace: module.Namespace, Name: module.Name}
	return Held{module: key, by: fleet.Judge(key, placement.RetryAsked(module)).Held}
}

// On says why a node does not get what is wanted of it, or what it did to the node.
func (h Held) On(want *desired.State, entry status.Entry) *reasons.Problem {
	if want == nil {
		return nil
	}
	s, ok := h.by[want.Delivery]
	reports := entry.Attempt != nil && entry.Attempt.Strike != nil
	if !ok || !reports && entry.Ordered() && entry.Order.Delivery != nil && entry.Order.Delivery.ID == want.Delivery {
		return nil
	}
	return &reasons.Problem{Reason: v1beta1.ReasonQuarantined, Message: fmt.Sprintf(
		"node %s went down with %s, so no further node gets it: ship another build, or run drover retry %s -n %s", s.Node, s.Build, h.module.Name,
		h.module.Namespace)}
}
