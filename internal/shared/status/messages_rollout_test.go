// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/status"
)

// TestMessagesOfRollouts holds what conditions say of rollouts, and of images that are made.
func TestMessagesOfRollouts(t *testing.T) {
	const (
		loaded  = v1beta1.ConditionLoaded
		devices = v1beta1.ConditionDevicesReady
		images  = v1beta1.ConditionImagesAvailable
		stalled = v1beta1.ConditionStalled
	)
	cases := map[string]told{
		"a node failed": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(3, some(1), func(i int, n *status.Node) {
				if i == 1 {
					n.Attempt = attempt(v1beta1.AttemptFailed, v1beta1.ReasonRolledBack, "no device (NoSuchDevice)")
				}
			}), Rollout: &rollout.Plan{
				Total: 3, Done: 1, Waiting: 1, Limit: 1, Unavailable: 1, Failed: []string{"b"}, Reason: "RolledBack", Halt: rollout.HaltFailed,
				Hold: hold("c"),
			}},
			then: map[string]string{loaded: "False RolledBack: Live on 1 of 3 nodes, another build is live on 2 nodes; rollout: 1 of 3 nodes have " +
				"generation 4, " +
				"paused: node b failed (RolledBack); RolledBack on b: no device (NoSuchDevice); RollingOut on c"},
		},
		"a paused rollout": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(2, old), Rollout: &rollout.Plan{
				Total: 2, Waiting: 2, Away: 1, Limit: 1, Halt: rollout.HaltPaused, Hold: hold("a", "b"),
			}},
			then: map[string]string{loaded: "False RolloutPaused: Live on 0 of 2 nodes, another build is live on 2 nodes; rollout: 0 of 2 nodes " +
				"have generation 4, " +
				"1 waiting but not Ready, paused by spec.rollout.paused; RollingOut on a, b"},
		},
		"the first node went away": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(3, old), Rollout: &rollout.Plan{
				Total: 3, Waiting: 2, Underway: 1, Limit: 1, Unavailable: 1, Trial: true, Lost: "a", Hold: hold("b", "c"),
			}},
			then: map[string]string{loaded: "False RollingOut: Live on 0 of 3 nodes, another build is live on 3 nodes; rollout: 0 of 3 nodes " +
				"have generation 4, 1 under way, node a went away with the change before it held it: the others wait until it is back or " +
				"deleted; Loading on a; RollingOut on b, c"},
		},
		"one that is no longer selected does not answer": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(2, old), Rollout: &rollout.Plan{
				Total: 3, Waiting: 2, Limit: 1, Unavailable: 1, Going: []string{"z"}, Hold: hold("a", "b"),
			}},
			then: map[string]string{loaded: "False RollingOut: Live on 0 of 2 nodes, another build is live on 2 nodes; rollout: 0 of 3 nodes " +
				"have generation 4, 1 of at most 1 unavailable; z, no longer selected, takes a place of maxUnavailable until it is unloaded " +
				"there; RollingOut on a, b"},
		},
		"other Modules have all places": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(2, old), Rollout: &rollout.Plan{
				Total: 2, Waiting: 2, Limit: 1, Crowded: []string{"a", "b"}, Hold: hold("a", "b"),
			}},
			then: map[string]string{loaded: "False RollingOut: Live on 0 of 2 nodes, another build is live on 2 nodes; rollout: 0 of 2 nodes " +
				"have generation 4, a, b wait for the operator's --max-unavailable-nodes: nodes of other Modules, or that are not Ready, take " +
				"all its places; RollingOut on a, b"},
		},
		"deselected all at once": {
			given: status.Module{Loads: true, Nodes: nodes(2, old, func(_ int, n *status.Node) { n.Wanted = false }),
				Rollout: &rollout.Plan{Total: 2, Limit: 1, Mass: []string{"a", "b"}}},
			then: map[string]string{loaded: "False MassDeselection: 2 nodes are no longer selected or without a mapping, but at most 1 may be " +
				"unavailable at a time, so nothing is unloaded on a, b; " +
				"restore the labels or the mapping, or confirm by setting the annotation drover.dev/confirm-deselection to the current time " +
				"(RFC 3339)"},
		},
		"deselected, and confirmed by a clock an hour off": {
			given: status.Module{Loads: true, Nodes: nodes(2, old, func(_ int, n *status.Node) { n.Wanted = false }),
				Rollout: &rollout.Plan{Total: 2, Limit: 1, Mass: []string{"a", "b"}, Confirmation: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}},
			then: map[string]string{loaded: "False MassDeselection: 2 nodes are no longer selected or without a mapping, but at most 1 may be " +
				"unavailable at a time, so nothing is unloaded on a, b; " +
				"restore the labels or the mapping, or confirm by setting the annotation drover.dev/confirm-deselection to the current time " +
				"(RFC 3339); " +
				"the confirmation of 2026-01-31T12:00:00Z does not count: it is not from the last hour by the operator's clock"},
		},
		"a node failed while others wait for their version label": {
			given: status.Module{Loads: true, Nodes: nodes(4, old, func(i int, n *status.Node) {
				n.Unlabelled = i > 0
				if i == 0 {
					n.Attempt = &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonNoSuchDevice}
				}
			})},
			then: map[string]string{loaded: "False NoSuchDevice: Live on 0 of 4 nodes, another build is live on 4 nodes; NoSuchDevice on a; " +
				"VersionLabel on b, c, d"},
		},
		"a build is asked for where nothing is built": {
			given: status.Module{Loads: true, MakesNone: true, Nodes: nodes(1, func(_ int, n *status.Node) {
				n.Delivery = &reasons.Problem{Reason: v1beta1.ReasonImageNotFound, Message: "nic:1: not found"}
			})},
			then: map[string]string{loaded: "False ImageNotFound: Live on 0 of 1 node; ImageNotFound on a: nic:1: not found; the Module asks for " +
				"a build or a signature, " +
				"but this operator makes no images: run it with --signer-image and the controller image"},
		},
		"all wait for their version label": {
			given: status.Module{Loads: true, Nodes: nodes(2, old, func(_ int, n *status.Node) { n.Unlabelled = true })},
			then:  map[string]string{loaded: "False VersionLabel: Live on 0 of 2 nodes, another build is live on 2 nodes; VersionLabel on a, b"},
		},
		"a version label is missing": {
			given: status.Module{Loads: true, Nodes: nodes(2, old, func(i int, n *status.Node) { n.Unlabelled = i == 1 })},
			then: map[string]string{loaded: "False Loading: Live on 0 of 2 nodes, another build is live on 2 nodes; Loading on a; " +
				"VersionLabel on b"},
		},
		"only nodes that cannot run an agent": {
			given: status.Module{Loads: true, Unsupported: []status.Unsupported{{Name: "b", Why: "runs windows"},
				{Name: "a", Why: "has the processor mips"}}},
			then: map[string]string{
				loaded:  "False UnsupportedNode: spec.selector matches no node that can load kernel modules: a has the processor mips, b runs windows",
				stalled: "True UnsupportedNode: spec.selector matches no node that can load kernel modules: a has the processor mips, b runs windows",
			},
		},
		"a request to try again on the Module that is no time": {
			given: status.Module{Loads: true, RetryIgnored: true, Nodes: nodes(1)},
			then: map[string]string{
				loaded: "False Loading: Live on 0 of 1 node; Loading on a; the annotation drover.dev/retry on the Module is ignored: its value is " +
					"not a valid RFC 3339 time",
			},
		},
		"leaving, with a limit": {
			given: status.Module{Loads: true, Deleting: true, Patience: 10 * time.Minute, Nodes: nodes(1)},
			then:  map[string]string{loaded: "False Unloading: The Module is being deleted and must still leave 1 node within 10m; Unloading on a"},
		},
		"failed nodes take all places": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(3, some(1)), Rollout: &rollout.Plan{
				Total: 3, Done: 1, Waiting: 1, Limit: 1, Unavailable: 1, Failed: []string{"b"}, Reason: "LoadFailed", Hold: hold("c"),
			}},
			then: map[string]string{loaded: "False RollingOut: Live on 1 of 3 nodes, another build is live on 2 nodes; rollout: 1 of 3 nodes have " +
				"generation 4, " +
				"1 of at most 1 unavailable: b failed (LoadFailed); Loading on b; RollingOut on c"},
		},
		"the only node deselected": {
			given: status.Module{Loads: true, Nodes: nodes(1, old, func(_ int, n *status.Node) { n.Wanted = false }),
				Rollout: &rollout.Plan{Total: 1, Limit: 0, Mass: []string{"a"}}},
			then: map[string]string{loaded: "False MassDeselection: 1 node is no longer selected or without a mapping, but at most 0 may be " +
				"unavailable at a time, " +
				"so nothing is unloaded on a; restore the labels or the mapping, or confirm by setting the annotation " +
				"drover.dev/confirm-deselection to the current time (RFC 3339)"},
		},
		"DRA where no node can run an agent": {
			given: status.Module{HasDRA: true},
			then:  map[string]string{devices: "False NoNodes: spec.selector matches no node that can load kernel modules"},
		},
		"images that the registry has": {
			given: status.Module{Loads: true, Makes: true, Nodes: nodes(1, live, withImage("6.1", nil))},
			then:  map[string]string{images: "True ImagesAvailable: The registry has 1 image"},
		},
		"images that failed or are on their way": {
			given: status.Module{Loads: true, Makes: true, Nodes: append(
				nodes(1, withImage("6.1", &reasons.Problem{Reason: v1beta1.ReasonBuilding, Message: "Job j makes it"})),
				nodes(1, withImage("6.12", &reasons.Problem{Reason: v1beta1.ReasonBuildFailed, Message: "m.c:3:1: error: expected ';'\nmake: " +
					"*** Error 1"}))...)},
			then: map[string]string{
				images: "False BuildFailed: 0 of 2 images available; BuildFailed for 6.12 (amd64): m.c:3:1: error: expected ';'; Building for 6.1 " +
					"(amd64): Job j makes it",
			},
		},
		"images that cannot be begun": {
			given: status.Module{Loads: true, Makes: true, Nodes: nodes(1),
				ImageProblem: &reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing, Message: "ConfigMap d is missing"}},
			then: map[string]string{images: "False BuildInputMissing: ConfigMap d is missing"},
		},
		"no node needs a built image": {
			given: status.Module{Loads: true, Makes: true, Nodes: nodes(1, live)},
			then:  map[string]string{images: "True NotRequested: No selected node needs an image that is built or signed in the cluster"},
		},
		"images for no node": {
			given: status.Module{Loads: true, Makes: true},
			then:  map[string]string{images: "True NoNodes: spec.selector matches no node that can load kernel modules"},
		},
	}
	says(t, cases)
}
