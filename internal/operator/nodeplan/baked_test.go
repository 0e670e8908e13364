// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestBaked: a node whose image is said to hold a delivery is asked first. Whatever its agent
// answers, a carrier is made unless it holds it.
func TestBaked(t *testing.T) {
	order := aimed(t)
	fresh := func(s *scene) { s.node.Config = nil }
	ordered := func(s *scene) { s.node.Config.Spec.Modules = []v1beta1.NodeModuleSpec{*order} }
	said := func(id string) func(*scene) {
		return func(s *scene) { s.node.Node.Labels[v1beta1.BakedLabel(id)] = "" }
	}
	baked := said(order.Delivery.ID)
	delivers := outcome{Creates: true, Writes: true, Remaining: 1}
	for name, tc := range map[string]struct {
		given []func(*scene)
		then  outcome
	}{
		"a new node gets the order alone":            {[]func(*scene){fresh, baked}, outcome{Writes: true, Remaining: 1}},
		"its answer is waited for":                   {[]func(*scene){ordered, baked}, outcome{Remaining: 1}},
		"it does not hold it":                        {[]func(*scene){ordered, baked, attempt(v1beta1.AttemptWaiting)}, delivers},
		"it failed":                                  {[]func(*scene){ordered, baked, attempt(v1beta1.AttemptFailed)}, delivers},
		"its image is said to hold something else":   {[]func(*scene){fresh, said("other")}, delivers},
		"nobody says anything of its image any more": {[]func(*scene){ordered}, delivers},
		"it had it and has lost it": {[]func(*scene){ordered, baked, func(s *scene) {
			s.node.Config.Status.Modules = []v1beta1.NodeModuleStatus{{ModuleItem: order.ModuleItem, Config: &order.Config}}
		}}, delivers},
		"it has another order": {[]func(*scene){baked, func(s *scene) {
			old := order.DeepCopy()
			old.Delivery.ID = "old"
			s.node.Config.Spec.Modules = []v1beta1.NodeModuleSpec{*old}
		}}, delivers},
		"reports cannot be trusted": {[]func(*scene){fresh, baked, func(s *scene) { s.unsealed = true }}, outcome{Blocked: true}},
		"it is not Ready":           {[]func(*scene){fresh, baked, func(s *scene) { s.node.Node.Status.Conditions = nil }}, outcome{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scene{module: given(), node: emptyNode()}
			for _, change := range tc.given {
				change(s)
			}
			if diff := cmp.Diff(tc.then, s.play(t)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}
