// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/internal/shared/rollout"
)

// TestSoakByOurOwnClock: whatever a node's clock says, the next node waits for the soak time from
// when the process saw the change live.
func TestSoakByOurOwnClock(t *testing.T) {
	nic := types.NamespacedName{Namespace: "team", Name: "nic"}
	policy := rollout.Policy{MaxUnavailable: intstr.FromInt32(1), Soak: time.Minute}
	live := func(at time.Time) rollout.Node {
		return rollout.Node{Name: "a", Stage: rollout.Given, Ready: true, Serving: true, Held: true, Since: at,
			Load: rollout.Load{Boot: "1", At: at.Unix()}}
	}
	behind := rollout.Node{Name: "b", Stage: rollout.Behind, Ready: true, Serving: true, Held: true}
	down := rollout.Node{Name: "a", Stage: rollout.Given, Ready: true, Held: true}
	type pass struct {
		// after the time of the first pass.
		after time.Duration
		nodes []rollout.Node
		// restarted: the process is a new one.
		restarted bool
		// begun: the second node is begun with; done: the first counts as done.
		begun, done bool
	}
	cases := map[string][]pass{
		"as long as asked": {
			{nodes: []rollout.Node{live(noon), behind}},
			{after: 59 * time.Second, nodes: []rollout.Node{live(noon), behind}},
			{after: time.Minute, nodes: []rollout.Node{live(noon), behind}, begun: true, done: true},
		},
		"also by a clock that is an hour ahead": {
			{nodes: []rollout.Node{live(noon.Add(time.Hour)), behind}},
			{after: time.Minute, nodes: []rollout.Node{live(noon.Add(time.Hour)), behind}, begun: true, done: true},
		},
		"and by one that is an hour behind": {
			{nodes: []rollout.Node{live(noon.Add(-time.Hour)), behind}},
			{after: 59 * time.Second, nodes: []rollout.Node{live(noon.Add(-time.Hour)), behind}},
			{after: time.Minute, nodes: []rollout.Node{live(noon.Add(-time.Hour)), behind}, begun: true, done: true},
		},
		"anew after another load": {
			{nodes: []rollout.Node{live(noon), behind}},
			{after: 50 * time.Second, nodes: []rollout.Node{live(noon.Add(30 * time.Second)), behind}},
			{after: time.Minute, nodes: []rollout.Node{live(noon.Add(30 * time.Second)), behind}},
			{after: 110 * time.Second, nodes: []rollout.Node{live(noon.Add(30 * time.Second)), behind}, begun: true, done: true},
		},
		"anew after a time in which it was not live": {
			{nodes: []rollout.Node{live(noon), behind}},
			{after: 10 * time.Second, nodes: []rollout.Node{down, behind}},
			{after: time.Minute, nodes: []rollout.Node{live(noon), behind}},
			{after: 2 * time.Minute, nodes: []rollout.Node{live(noon), behind}, begun: true, done: true},
		},
		"a restart begins it anew": {
			{nodes: []rollout.Node{live(noon), behind}},
			{after: 50 * time.Second, nodes: []rollout.Node{live(noon), behind}, restarted: true},
			{after: 109 * time.Second, nodes: []rollout.Node{live(noon), behind}},
			{after: 110 * time.Second, nodes: []rollout.Node{live(noon), behind}, begun: true, done: true},
		},
		"but not where nobody waits": {
			{nodes: []rollout.Node{live(noon)}, done: true},
			{after: time.Second, nodes: []rollout.Node{live(noon), behind}, begun: true, done: true},
		},
		"what comes live later soaks": {
			{nodes: []rollout.Node{down}},
			{after: time.Second, nodes: []rollout.Node{live(noon)}},
			{after: time.Minute, nodes: []rollout.Node{live(noon), behind}},
			{after: 61 * time.Second, nodes: []rollout.Node{live(noon), behind}, begun: true, done: true},
		},
	}
	for name, passes := range cases {
		t.Run(name, func(t *testing.T) {
			seen := &rollout.Sightings{}
			for i, pass := range passes {
				if pass.restarted {
					seen = &rollout.Sightings{}
				}
				now := noon.Add(pass.after)
				seen.Date(nic, pass.nodes, policy, now)
				p := rollout.Make(pass.nodes, policy, now)
				if begun, done := p.Start["b"], p.Done == 1; begun != pass.begun || done != pass.done {
					t.Errorf("pass %d: begun %v, done %v, want %v, %v", i, begun, done, pass.begun, pass.done)
				}
			}
		})
	}
}
