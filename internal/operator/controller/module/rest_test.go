// SPDX-License-Identifier: Apache-2.0

package module

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/strikes"
)

// restful is a fleet of three nodes that have no order, and a Module that asks for none.
func restful() *snapshot {
	s := &snapshot{Pass: nodeplan.Pass{
		Key: types.NamespacedName{Namespace: "drivers", Name: "m"},
		Module: &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{
			Namespace: "drivers", Name: "m", ResourceVersion: "1",
		}},
		Now: time.Unix(1000, 0),
	}}
	for _, name := range []string{"a", "b", "c"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}
		config := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}
		s.nodes = append(s.nodes, nodeplan.Node{Name: name, Node: node, Config: config})
	}
	return s
}

func planned(s *snapshot) *plan {
	if s.Module != nil {
		s.Wants = desired.New(s.Module).With(desired.Images{})
	}
	return &plan{snapshot: s, plans: s.Make(s.nodes, s.Aims(s.nodes), nil)}
}

// A node rests until something of it changes that was decided by.
func TestANodeRestsUntilItChanges(t *testing.T) {
	cases := map[string]struct {
		given func(*snapshot)
		// then are the nodes that rest.
		then string
	}{
		"nothing changed":  {given: func(*snapshot) {}, then: "abc"},
		"a node changed":   {given: func(s *snapshot) { s.nodes[1].Node.ResourceVersion = "2" }, then: "ac"},
		"a report changed": {given: func(s *snapshot) { s.nodes[1].Config.ResourceVersion = "2" }, then: "ac"},
		"a report is gone": {given: func(s *snapshot) { s.nodes[1].Config = nil }, then: "ac"},
		"a node is gone":   {given: func(s *snapshot) { s.nodes[1].Node = nil }, then: "ac"},
		"a node went":      {given: func(s *snapshot) { s.nodes = append(s.nodes[:1:1], s.nodes[2]) }, then: "ac"},
		"a node came": {given: func(s *snapshot) {
			s.nodes = append([]nodeplan.Node{{Name: "A", Node: &corev1.Node{}}}, s.nodes...)
		}, then: "abc"},
		"a carrier is there":     {given: func(s *snapshot) { s.nodes[0].Carriers = []*corev1.Pod{{}} }, then: "bc"},
		"a node is drained":      {given: func(s *snapshot) { s.Memory.Drains = map[string]nodeplan.Wait{"c": {}} }, then: "ab"},
		"a node is in its grace": {given: func(s *snapshot) { s.Memory.Unwanted = map[types.UID]time.Time{"c": s.Now} }, then: "ab"},
		"the Module changed":     {given: func(s *snapshot) { s.Module.ResourceVersion = "2" }},
		"the Module leaves":      {given: func(s *snapshot) { s.Module.DeletionTimestamp = &metav1.Time{} }},
		"the Module is gone":     {given: func(s *snapshot) { s.Module = nil }},
		"an image is made": {given: func(s *snapshot) {
			s.images = []v1alpha1.ModuleImage{{ObjectMeta: metav1.ObjectMeta{Name: "i", ResourceVersion: "1"}}}
		}},
		"the definition is new":          {given: func(s *snapshot) { s.Defined = metav1.Unix(7, 0) }},
		"a delivery struck a node":       {given: func(s *snapshot) { s.Verdict.Held = map[string]strikes.Strike{"d": {}} }},
		"a strike is excused":            {given: func(s *snapshot) { s.Verdict.Excuse = map[string]time.Time{"a": s.Now} }},
		"an admission policy is missing": {given: func(s *snapshot) { s.Unsealed = &reasons.Problem{} }},
		"there is a DRA driver":          {given: func(s *snapshot) { s.Devices.Driver = "d" }},
		"there is a ModulePolicy":        {given: func(s *snapshot) { s.Policies = aPolicy(t) }},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			// Given: a pass that found nothing to do.
			var r rests
			r.note(planned(restful()))
			// When: the next one looks at the fleet.
			now := restful()
			test.given(now)
			r.mark(now)
			// Then: it looks at what has changed.
			got := ""
			for i := range now.nodes {
				if now.nodes[i].Rest != nil {
					got += now.nodes[i].Name
				}
			}
			if got != test.then {
				t.Errorf("%q rest, want %q", got, test.then)
			}
			r.note(planned(now))
		})
	}
}

func aPolicy(t *testing.T) modulepolicy.Set {
	t.Helper()
	set := modulepolicy.Of([]v1alpha1.ModulePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p"}}})
	if set.Empty() {
		t.Fatal("there is no policy")
	}
	return set
}

// What rests keeps its part of the rollout, and has its turn like all others.
func TestARestingNodeKeepsItsPart(t *testing.T) {
	part := rollout.Node{Name: "a", Serving: true}
	s := restful()
	s.nodes[0].Rest = &nodeplan.Rest{Part: part, Has: true}
	s.Module.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{}
	if got := s.Rest(&nodeplan.Plan{Node: &s.nodes[0]}); !got.Has || got.Part != part {
		t.Errorf("its part is %+v", got)
	}
	s.Module.Spec.ModuleLoader = nil
	held := &rollout.Plan{Hold: map[string]bool{"a": true}}
	plans := s.Make(s.nodes, s.Aims(s.nodes), held)
	if !plans[0].Turn.Waits || plans[0].Rests() {
		t.Errorf("a node whose turn it is not: %+v", plans[0].Turn)
	}
	if !plans[1].Rests() {
		t.Error("a node with nothing to do does not rest")
	}
}
