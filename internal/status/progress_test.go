// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/rollout"
	"github.com/drover-project/drover/internal/status"
)

// TestRolloutInWords: how far it is, why it stands still, and what somebody can do.
func TestRolloutInWords(t *testing.T) {
	hold := func(names ...string) map[string]bool {
		held := map[string]bool{}
		for _, name := range names {
			held[name] = true
		}
		return held
	}
	old := func(i int, n *status.Node) { n.Live, n.Usable = true, true }
	some := func(done int) func(int, *status.Node) {
		return func(i int, n *status.Node) {
			old(i, n)
			n.Available = i < done
		}
	}
	cases := map[string]struct {
		given status.Module
		then  string
	}{
		"under way": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(4, some(1)), Rollout: &rollout.Plan{
				Total: 4, Done: 1, Underway: 1, Waiting: 2, Limit: 1, Unavailable: 1, Hold: hold("c", "d"),
			}},
			then: "False RollingOut: Live on 1 of 4 nodes, another build is live on 3 nodes; rollout: 1 of 4 nodes have generation 4, 1 under way, " +
				"1 unavailable of at most 1; Loading on b; RollingOut on c, d",
		},
		"the first node": {
			given: status.Module{Loads: true, Generation: 2, Nodes: nodes(2, old), Rollout: &rollout.Plan{
				Total: 2, Underway: 1, Waiting: 1, Limit: 1, Trial: true, Hold: hold("b"),
			}},
			then: "False RollingOut: Live on 0 of 2 nodes, another build is live on 2 nodes; rollout: 0 of 2 nodes have generation 2, 1 under way, " +
				"the first node has to hold it before the others begin; Loading on a; RollingOut on b",
		},
		"a node failed": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(3, some(1), func(i int, n *status.Node) {
				if i == 1 {
					n.Attempt = attempt(v1beta1.AttemptFailed, v1beta1.ReasonRolledBack, "no device (NoSuchDevice)")
				}
			}), Rollout: &rollout.Plan{
				Total: 3, Done: 1, Waiting: 1, Limit: 1, Unavailable: 1, Failed: []string{"b"}, Reason: "RolledBack", Halt: rollout.HaltFailed, Hold: hold("c"),
			}},
			then: "False RolledBack: Live on 1 of 3 nodes, another build is live on 2 nodes; rollout: 1 of 3 nodes have generation 4, " +
				"paused: node b failed (RolledBack); RolledBack on b: no device (NoSuchDevice); RollingOut on c",
		},
		"paused": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(2, old), Rollout: &rollout.Plan{
				Total: 2, Waiting: 2, Away: 1, Limit: 1, Halt: rollout.HaltPaused, Hold: hold("a", "b"),
			}},
			then: "False RolloutPaused: Live on 0 of 2 nodes, another build is live on 2 nodes; rollout: 0 of 2 nodes have generation 4, " +
				"1 of those that wait not Ready, paused by spec.rollout.paused; RollingOut on a, b",
		},
		"deselected all at once": {
			given: status.Module{Loads: true, Nodes: nodes(2, old, func(_ int, n *status.Node) { n.Wanted = false }),
				Rollout: &rollout.Plan{Total: 2, Limit: 1, Mass: []string{"a", "b"}}},
			then: "False MassDeselection: 2 nodes are no longer selected or without a mapping, and at most 1 may be unavailable at a time: nothing is unloaded on a, b; " +
				"bring the labels back, or confirm with the annotation drover.dev/confirm-deselection set to the present time (RFC 3339)",
		},
		"deselected, and confirmed by a clock an hour off": {
			given: status.Module{Loads: true, Nodes: nodes(2, old, func(_ int, n *status.Node) { n.Wanted = false }),
				Rollout: &rollout.Plan{Total: 2, Limit: 1, Mass: []string{"a", "b"}, Confirmation: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}},
			then: "False MassDeselection: 2 nodes are no longer selected or without a mapping, and at most 1 may be unavailable at a time: nothing is unloaded on a, b; " +
				"bring the labels back, or confirm with the annotation drover.dev/confirm-deselection set to the present time (RFC 3339); " +
				"that of 2026-01-31T12:00:00Z does not count: it is not of the last hour by the operator's clock",
		},
		"a node failed while others wait for their version label": {
			given: status.Module{Loads: true, Nodes: nodes(4, old, func(i int, n *status.Node) {
				n.Unlabelled = i > 0
				if i == 0 {
					n.Attempt = &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonNoSuchDevice}
				}
			})},
			then: "False NoSuchDevice: Live on 0 of 4 nodes, another build is live on 4 nodes; NoSuchDevice on a; VersionLabel on b, c, d",
		},
		"a build is asked for where nothing is built": {
			given: status.Module{Loads: true, MakesNone: true, Nodes: nodes(1, func(_ int, n *status.Node) {
				n.Delivery = &reasons.Problem{Reason: v1beta1.ReasonImageNotFound, Message: "nic:1: not found"}
			})},
			then: "False ImageNotFound: Live on 0 of 1 node; ImageNotFound on a: nic:1: not found; the Module asks for a build or a signature, " +
				"but this operator makes no images: it runs without --signer-image or without the controller image",
		},
		"all wait for their version label": {
			given: status.Module{Loads: true, Nodes: nodes(2, old, func(_ int, n *status.Node) { n.Unlabelled = true })},
			then:  "False VersionLabel: Live on 0 of 2 nodes, another build is live on 2 nodes; VersionLabel on a, b",
		},
		"a version label is missing": {
			given: status.Module{Loads: true, Nodes: nodes(2, old, func(i int, n *status.Node) { n.Unlabelled = i == 1 })},
			then:  "False Loading: Live on 0 of 2 nodes, another build is live on 2 nodes; Loading on a; VersionLabel on b",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := line(status.Compute(&tc.given).Conditions, v1beta1.ConditionLoaded); got != tc.then {
				t.Errorf("got  %s\nwant %s", got, tc.then)
			}
		})
	}
}
