// SPDX-License-Identifier: Apache-2.0

package strikes_test

import (
	stdcmp "cmp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/strikes"
)

var nic = types.NamespacedName{Namespace: "team", Name: "nic"}

func minute(m int) time.Time { return time.Date(2030, 1, 1, 12, m, 0, 0, time.UTC) }

// report is one node with one Module's strike.
type report struct {
	node, module, delivery string
	minute                 int
	evidence, kept         bool
	// ordered is the delivery that the node has an order for; "": that of the strike.
	ordered string
	// retried is the minute of the request that the node carried out; 0: none.
	retried int
	// excused is the minute that the order says; 0: none. cleared: nothing is reported any more.
	excused int
	cleared bool
}

func (r report) config() *v1beta1.NodeModulesConfig {
	if r.module == "" {
		r.module = "nic"
	}
	if r.delivery == "" {
		r.delivery = "d1"
	}
	c := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: r.node}}
	order := v1beta1.NodeModuleSpec{ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: r.module},
		Delivery: &v1beta1.Delivery{ID: stdcmp.Or(r.ordered, r.delivery)}}
	if r.excused > 0 {
		order.Excused = &metav1.Time{Time: minute(r.excused)}
	}
	c.Spec.Modules = []v1beta1.NodeModuleSpec{order}
	var retried *metav1.Time
	if r.retried > 0 {
		retried = &metav1.Time{Time: minute(r.retried)}
	}
	if !r.cleared {
		c.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: r.module, Strike: &v1beta1.Strike{
			Delivery: r.delivery, Build: r.module + " (build 1)", Began: metav1.NewTime(minute(r.minute).Local()), Evidence: r.evidence,
			Kept: r.kept, Retry: retried,
		}}}
	}
	return c
}

func TestJudge(t *testing.T) {
	type verdict struct {
		// Held is the node that says why, by delivery; Excuse the minute, by node.
		Held   map[string]string
		Excuse map[string]int
	}
	everywhere := []report{{node: "a", minute: 1}, {node: "b", minute: 2}, {node: "c", minute: 3}, {node: "d", minute: 4}}
	with := func(change func(i int, r *report)) []report {
		var all []report
		for i, r := range everywhere {
			change(i, &r)
			all = append(all, r)
		}
		return all
	}
	cases := map[string]struct {
		given   []report
		retried int
		then    verdict
	}{
		"nothing": {},
		"one strike holds its delivery": {given: []report{{node: "a", minute: 1}},
			then: verdict{Held: map[string]string{"d1": "a"}}},
		"each delivery for itself": {given: []report{{node: "b", minute: 1},
			{node: "a", minute: 30, delivery: "d2"}}, then: verdict{Held: map[string]string{"d1": "b", "d2": "a"}}},
		"the first node by name is told": {given: []report{{node: "b", minute: 1}, {node: "a", minute: 30}},
			then: verdict{Held: map[string]string{"d1": "a"}}},
		"another Module's is not ours":                           {given: []report{{node: "a", module: "fs", minute: 1}}},
		"a node that was never given the delivery holds nothing": {given: []report{{node: "a", minute: 1, ordered: "d2"}}},
		"cleared":                      {given: []report{{node: "a", minute: 1, cleared: true}}},
		"not retried there yet":        {given: []report{{node: "a", minute: 1}}, retried: 2},
		"nor by a clock that is ahead": {given: []report{{node: "a", minute: 30}}, retried: 2},
		"retried there before":         {given: []report{{node: "a", minute: 30, retried: 1}}, retried: 2},
		"struck again after the retry": {given: []report{{node: "a", minute: 3, retried: 2}}, retried: 2,
			then: verdict{Held: map[string]string{"d1": "a"}}},
		"also by a clock that is behind": {given: []report{{node: "a", minute: 1, retried: 2}}, retried: 2,
			then: verdict{Held: map[string]string{"d1": "a"}}},
		"the node's own retry came later": {given: []report{{node: "a", minute: 1, retried: 3}}, retried: 2,
			then: verdict{Held: map[string]string{"d1": "a"}}},
		"on many nodes within minutes it came from outside": {
			given: everywhere, then: verdict{Excuse: map[string]int{"a": 1, "b": 2, "c": 3, "d": 4}},
		},
		"also when other Modules were being loaded": {
			given: with(func(i int, r *report) { r.module = []string{"nic", "fs", "fs", "gpu"}[i] }), then: verdict{Excuse: map[string]int{"a": 1}},
		},
		"but not where a kernel named the module": {
			given: append(with(func(int, *report) {}), report{node: "e", minute: 4, evidence: true}),
			then:  verdict{Held: map[string]string{"d1": "e"}, Excuse: map[string]int{"a": 1, "b": 2, "c": 3, "d": 4}},
		},
		"evidence does not count towards it": {
			given: with(func(i int, r *report) { r.evidence = i == 0 }), then: verdict{Held: map[string]string{"d1": "a"}},
		},
		"a node that was told and has not answered yet holds nothing": {
			given: with(func(_ int, r *report) { r.excused = r.minute }), then: verdict{Excuse: map[string]int{"a": 1, "b": 2, "c": 3, "d": 4}},
		},
		"one that answered that it keeps the strike does": {
			given: with(func(i int, r *report) { r.excused, r.kept = r.minute, i == 1 }),
			then:  verdict{Held: map[string]string{"d1": "b"}, Excuse: map[string]int{"a": 1, "c": 3, "d": 4}},
		},
		"nor does one that went down again after it was excused": {
			given: with(func(i int, r *report) {
				if i == 1 {
					r.minute, r.excused = 9, 2
				}
			}),
			then: verdict{Held: map[string]string{"d1": "b"}, Excuse: map[string]int{"a": 1, "c": 3, "d": 4}},
		},
		"a node that comes back late belongs to those that were excused": {
			given: append(with(func(_ int, r *report) { r.excused, r.cleared = r.minute, true }), report{node: "e", minute: 5}),
			then:  verdict{Excuse: map[string]int{"e": 5}},
		},
		"one that goes down an hour later does not": {
			given: append(with(func(_ int, r *report) { r.excused, r.cleared = r.minute, true }), report{node: "e", minute: 59}),
			then:  verdict{Held: map[string]string{"d1": "e"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var fleet strikes.Fleet
			for _, r := range tc.given {
				fleet.Add(r.config())
			}
			var retried time.Time
			if tc.retried > 0 {
				retried = minute(tc.retried)
			}
			v := fleet.Judge(nic, retried)
			var got verdict
			for delivery, s := range v.Held {
				if got.Held == nil {
					got.Held = map[string]string{}
				}
				got.Held[delivery] = s.Node
			}
			for node, at := range v.Excuse {
				if got.Excuse == nil {
					got.Excuse = map[string]int{}
				}
				got.Excuse[node] = at.UTC().Minute()
			}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
