// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/internal/shared/rollout"
)

// TestForeseen: the steps that are shown before anything happens.
func TestForeseen(t *testing.T) {
	behind := func(name string) rollout.Node {
		return rollout.Node{Name: name, Stage: rollout.Behind, Ready: true, Serving: true}
	}
	with := func(n rollout.Node, change func(*rollout.Node)) rollout.Node {
		change(&n)
		return n
	}
	leaving := func(name string) rollout.Node {
		return rollout.Node{Name: name, Stage: rollout.Leaving, Ready: true, Serving: true, Later: true}
	}
	two := intstr.FromInt32(2)
	cases := map[string]struct {
		nodes  []rollout.Node
		policy rollout.Policy
		then   rollout.Forecast
	}{
		"nothing to do": {
			nodes:  []rollout.Node{{Name: "a", Stage: rollout.Given, Ready: true, Serving: true, Since: noon}},
			policy: rollout.Policy{MaxUnavailable: two},
			then:   rollout.Forecast{Total: 1, Limit: 2},
		},
		"the first one alone, then as many as may be": {
			nodes:  []rollout.Node{behind("a"), behind("b"), behind("c"), behind("d")},
			policy: rollout.Policy{MaxUnavailable: two, Trial: true, Soak: time.Hour},
			then:   rollout.Forecast{Total: 4, Limit: 2, Steps: [][]string{{"a"}, {"b", "c"}, {"d"}}},
		},
		"a node that gets its first load proves the change as well": {
			nodes:  []rollout.Node{{Name: "new", Ready: true}, behind("a"), behind("b")},
			policy: rollout.Policy{MaxUnavailable: two, Trial: true},
			then:   rollout.Forecast{Total: 3, Limit: 2, Steps: [][]string{{"a", "b"}}},
		},
		"nodes that are away take places and have no turn": {
			nodes: []rollout.Node{
				with(behind("a"), func(n *rollout.Node) { n.Ready = false }), behind("b"), behind("c"),
				with(behind("d"), func(n *rollout.Node) { n.Paused = true }),
			},
			policy: rollout.Policy{MaxUnavailable: two},
			then: rollout.Forecast{
				Total: 4, Limit: 2, Unavailable: 1, Steps: [][]string{{"b"}, {"c"}},
				Left: []rollout.Left{{Node: "a", Why: "the node is not Ready"}, {Node: "d", Why: "paused by annotation"}},
			},
		},
		"the limit is reached already": {
			nodes:  []rollout.Node{with(behind("a"), func(n *rollout.Node) { n.Ready = false }), behind("b")},
			policy: rollout.Policy{MaxUnavailable: intstr.FromInt32(1)},
			then: rollout.Forecast{Total: 2, Limit: 1, Unavailable: 1, Left: []rollout.Left{
				{Node: "a", Why: "the node is not Ready"}, {Node: "b", Why: "no more nodes may be unavailable"},
			}},
		},
		"paused": {
			nodes: []rollout.Node{behind("a")}, policy: rollout.Policy{MaxUnavailable: two, Paused: true},
			then: rollout.Forecast{Total: 1, Limit: 2, Halt: rollout.HaltPaused,
				Left: []rollout.Left{{Node: "a", Why: "spec.rollout.paused is set"}}},
		},
		"who leaves waits for its grace": {
			nodes: []rollout.Node{leaving("a"), behind("b"), behind("c"), behind("d")}, policy: rollout.Policy{MaxUnavailable: two},
			then: rollout.Forecast{Total: 4, Limit: 2, Steps: [][]string{{"b", "c"}, {"d"}, {"a"}}},
		},
		"too many leave": {
			nodes: []rollout.Node{leaving("a"), leaving("b"), behind("c")}, policy: rollout.Policy{MaxUnavailable: intstr.FromInt32(1)},
			then: rollout.Forecast{Total: 3, Limit: 1, Steps: [][]string{{"c"}}, Mass: []string{"a", "b"}, Left: []rollout.Left{
				{Node: "a", Why: "more nodes than may be unavailable are deselected or tainted, and nobody has confirmed that"},
				{Node: "b", Why: "more nodes than may be unavailable are deselected or tainted, and nobody has confirmed that"},
			}},
		},
		"who reboots sets the pace": {
			nodes:  []rollout.Node{{Name: "a", Stage: rollout.Fresh, Ready: true, Serving: true}},
			policy: rollout.Policy{MaxUnavailable: two, Trial: true},
			then:   rollout.Forecast{Total: 1, Limit: 2},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given := slices.Clone(tc.nodes)
			if diff := cmp.Diff(&tc.then, rollout.Foresee(tc.nodes, tc.policy, noon)); diff != "" {
				t.Errorf("forecast (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(given, tc.nodes); diff != "" {
				t.Errorf("what was given has changed (-was +is):\n%s", diff)
			}
		})
	}
}

// TestForeseenIsWhatHappens: the order that is foreseen is the one in which a fleet whose nodes do
// as they are told is changed.
func TestForeseenIsWhatHappens(t *testing.T) {
	for limit := range int32(5) {
		for _, trial := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d at a time, trial %t", limit+1, trial), func(t *testing.T) {
				policy := rollout.Policy{MaxUnavailable: intstr.FromInt32(limit + 1), Trial: trial, Soak: 20 * time.Second}
				c := newCluster(t, 10, policy)
				c.nodes[3].down = limit > 0
				var nodes []rollout.Node
				for _, m := range c.nodes {
					nodes = append(nodes, c.seen(m))
				}
				var foreseen []string
				for _, step := range rollout.Foresee(nodes, policy, c.now).Steps {
					foreseen = append(foreseen, strings.Join(step, " "))
				}

				var happened []string
				for range 600 {
					before := len(c.started)
					c.second(len(c.nodes))
					if begun := slices.Clone(c.started[before:]); len(begun) > 0 {
						slices.Sort(begun)
						happened = append(happened, strings.Join(begun, " "))
					}
				}

				if diff := cmp.Diff(happened, foreseen); diff != "" {
					t.Errorf("(-happened +foreseen)\n%s", diff)
				}
			})
		}
	}
}
