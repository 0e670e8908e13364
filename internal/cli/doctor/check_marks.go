// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/nodemarks"
	"github.com/drover-project/drover/internal/shared/words"
)

// taintOwner is the field manager by which Drover's operator makes DeviceTaintRules.
const taintOwner = "drover-taint"

// shown is how many names a line about marks has.
const shown = 3

// marks lists what Drover has put on objects of others. Without an operator, nothing ends any of
// it. Modules, and labels of nodes, can be KMM's as well.
func marks(s *Snapshot) []Finding {
	alone := s.Operator == nil && s.Unseen[partWorkloads] == ""
	found := s.hidden(partTaints)
	say := func(stays bool, what string, names []string) {
		switch {
		case len(names) == 0:
		case alone && !stays:
			found = append(found, warn("run `drover-operator release`, which takes them off, or install Drover again",
				"no operator runs that would end this: %s: %s", what, words.List(names, shown))...)
		default:
			found = append(found, ok("%s: %s", what, words.List(names, shown))...)
		}
	}
	m := s.marked()
	say(false, "nodes that Drover has cordoned", m.cordoned)
	say(false, "DeviceTaintRules by which Drover keeps pods off devices", s.TaintRules)
	say(false, "nodes with the condition "+v1beta1.NodeConditionKernelModules, m.conditions)
	say(s.Unseen[partPeers] != "" || s.peer() != nil, "nodes with labels of Modules that are gone", m.gone)
	say(true, "nodes with labels of Modules, by which pods choose nodes", m.there)
	if alone && len(m.waiting) > 0 {
		found = append(found, warn("install Drover again, or take the taint off: kubectl taint node NODE KEY-",
			"no operator runs that would take startup taints off: %s", words.List(m.waiting, shown))...)
	}
	return found
}

// marked are nodes with something of Drover's, in words.
type marked struct{ cordoned, conditions, gone, there, waiting []string }

func (s *Snapshot) marked() marked {
	var m marked
	var names []types.NamespacedName
	startup := map[string]bool{}
	for i := range s.Modules {
		names = append(names, types.NamespacedName{Namespace: s.Modules[i].Namespace, Name: s.Modules[i].Name})
		startup[s.Modules[i].Spec.StartupTaint] = true
	}
	delete(startup, "")
	speaking := nodemarks.Speaking(names)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if modules := nodemarks.CordonedFor(n); len(modules) > 0 {
			m.cordoned = append(m.cordoned, n.Name+" for "+words.List(modules, shown))
		}
		if nodemarks.Condition(n) != nil {
			m.conditions = append(m.conditions, n.Name)
		}
		there, gone := nodemarks.Labels(n, speaking)
		if s.Unseen[partModules] != "" { // whether they are gone is not seen
			there, gone = append(there, gone...), nil
		}
		if len(there) > 0 {
			m.there = append(m.there, n.Name)
		}
		if len(gone) > 0 {
			m.gone = append(m.gone, n.Name+" ("+words.List(gone, shown)+")")
		}
		if at := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return startup[t.Key] }); at >= 0 {
			m.waiting = append(m.waiting, n.Name+" ("+n.Spec.Taints[at].Key+")")
		}
	}
	return m
}
