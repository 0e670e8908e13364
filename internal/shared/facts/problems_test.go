// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestWhatIsToldOfANode: the operator's word on the node comes before its carrier's, and that
// before what concerns all nodes.
func TestWhatIsToldOfANode(t *testing.T) {
	said := func(part v1beta1.ProblemPart, node, message string) v1beta1.ModuleProblem {
		return v1beta1.ModuleProblem{Part: part, Node: node, Reason: v1beta1.ReasonDeliveryRefused, Message: message}
	}
	m := &v1beta1.Module{Status: v1beta1.ModuleStatus{Problems: []v1beta1.ModuleProblem{
		said(v1beta1.ProblemPlugin, v1beta1.AllNodes, "plugin"), said(v1beta1.ProblemDeliveries, "a", "refused"),
		said(v1beta1.ProblemPlugin, "b", "no delivery"),
	}}}
	carriers := map[string]reasons.Problem{"a": {Message: "carrier"}, "b": {Message: "carrier"}}
	expect := func(want map[string]string) {
		t.Helper()
		deliveries := facts.Deliveries(m, carriers)
		for node, text := range want {
			got := ""
			if p := deliveries(node); p != nil {
				got = p.Message
			}
			if got != text {
				t.Errorf("of %s is told %q, want %q", node, got, text)
			}
		}
	}
	expect(map[string]string{"a": "refused", "b": "carrier", "c": ""})
	m.Status.Problems = append(m.Status.Problems, said(v1beta1.ProblemDeliveries, v1beta1.AllNodes, "no policy"),
		said(v1beta1.ProblemDeliveries, v1beta1.OtherNodes, "others"))
	expect(map[string]string{"a": "refused", "b": "carrier", "c": "no policy"})

	about := facts.Of(m)
	if about.PluginProblem == nil || about.PluginProblem.Message != "plugin" || about.Others == nil || about.Others.Message != "others" {
		t.Errorf("of the Module is told %+v and %+v", about.PluginProblem, about.Others)
	}
	if p := facts.Problem(m, v1beta1.ProblemImages); p != nil {
		t.Errorf("of its images is told %+v", p)
	}
}
