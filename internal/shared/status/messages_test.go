// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/status"
)

// told is a Module, and what its conditions say.
type told struct {
	given status.Module
	then  map[string]string // by type of condition
}

// TestMessages holds every message of a Module's conditions.
func TestMessages(t *testing.T) {
	const (
		ready, covered, loaded = v1beta1.ConditionReady, v1beta1.ConditionKernelsCovered, v1beta1.ConditionLoaded
		devices                = v1beta1.ConditionDevicesReady
	)
	unmapped := &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping}
	cases := map[string]told{
		"all is well": {
			given: status.Module{Loads: true, Nodes: nodes(2, live)},
			then: map[string]string{
				ready:   "True Ready: Every selected node has everything that the Module asks for",
				covered: "True AllKernelsCovered: A kernel mapping matches the kernel of 2 selected nodes",
				loaded:  "True Loaded: Live on 2 nodes",
				devices: "True NotRequested: The Module has no device plugin and no DRA driver",
			},
		},
		"an image that is not the same everywhere": {
			given: status.Module{Loads: true, Nodes: nodes(3, live, func(i int, n *status.Node) {
				n.Content = &status.Content{Image: "r/nic:1", Same: "id amd64", Digest: []string{"sha256:aa", "sha256:bb", "sha256:aa"}[i]}
			})},
			then: map[string]string{
				ready:  "True Ready: Every selected node has everything that the Module asks for",
				loaded: "True MixedContent: Live on 3 nodes; r/nic:1 has different content on different nodes: sha256:aa on a, c, sha256:bb on b",
			},
		},
		"a module that was live with other parameters": {
			given: status.Module{Loads: true, Nodes: nodes(2, live, func(i int, n *status.Node) {
				if i == 1 {
					n.Attempt = &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonParametersDiffer,
						Message: `Module nic was live before its load, and keeps the parameters it had: size is "4", not "8".`}
				}
			})},
			then: map[string]string{
				ready: "True Ready: Every selected node has everything that the Module asks for",
				loaded: "True ParametersDiffer: Live on 2 nodes; ParametersDiffer on b: Module nic was live before its load, and keeps the " +
					`parameters it had: size is "4", not "8".`,
			},
		},
		"an image with content of its own for each architecture": {
			given: status.Module{Loads: true, Nodes: nodes(2, live, func(i int, n *status.Node) {
				n.Content = &status.Content{Image: "r/nic:1", Same: []string{"id amd64", "id arm64"}[i], Digest: []string{"sha256:aa", "sha256:bb"}[i]}
			})},
			then: map[string]string{loaded: "True Loaded: Live on 2 nodes"},
		},
		"nothing is changed in the cluster": {
			given: status.Module{Loads: true, Nodes: nodes(1, live),
				ReadOnly: &reasons.Problem{Reason: v1beta1.ReasonPeerActive, Message: "KMM is at work"}},
			then: map[string]string{ready: "False PeerActive: KMM is at work", loaded: "True Loaded: Live on 1 node"},
		},
		"no node": {
			given: status.Module{Loads: true},
			then: map[string]string{
				ready:   "False NoNodes: spec.selector matches no node that can load kernel modules",
				covered: "True NoNodes: spec.selector matches no node that can load kernel modules",
				loaded:  "False NoNodes: spec.selector matches no node that can load kernel modules",
			},
		},
		"on the way": {
			given: status.Module{Loads: true, Nodes: nodes(5, func(i int, n *status.Node) {
				if i == 2 {
					live(i, n)
				}
				n.Attempt = attempt(v1beta1.AttemptWaiting, v1beta1.ReasonAwaitingDelivery, "")
			})},
			then: map[string]string{
				ready:  "False Loading: Live on 1 of 5 nodes; Loading on a, b, d and 1 more",
				loaded: "False Loading: Live on 1 of 5 nodes; Loading on a, b, d and 1 more",
			},
		},
		"a load that took a node down": {
			given: status.Module{Loads: true, Nodes: nodes(4, func(i int, n *status.Node) {
				switch why := (&reasons.Problem{Reason: v1beta1.ReasonQuarantined, Message: "node b went down"}); i {
				case 0:
					n.Struck = why
				case 1:
					n.Struck, n.Attempt = why, attempt(v1beta1.AttemptWaiting, v1beta1.ReasonQuarantined, "Not loaded: on this node")
				case 2:
					n.Struck, n.Attempt = why, attempt(v1beta1.AttemptInUse, v1beta1.ReasonInUse, "busy")
				}
			})},
			then: map[string]string{
				loaded: "False Quarantined: Live on 0 of 4 nodes; Quarantined on a, b: node b went down; InUse on c: busy; Loading on d",
			},
		},
		"requests to try again that are no times": {
			given: status.Module{Loads: true, RetryIgnored: true, Nodes: nodes(2, func(i int, n *status.Node) {
				n.Attempt, n.RetryIgnored = attempt(v1beta1.AttemptFailed, v1beta1.ReasonNoSuchDevice, "no device"), i == 1
			})},
			then: map[string]string{
				loaded: "False NoSuchDevice: Live on 0 of 2 nodes; NoSuchDevice on a, b: no device; the annotation drover.dev/retry on b is ignored: " +
					"its value is not a valid RFC 3339 time",
			},
		},
		"failures before patience, the most frequent first": {
			given: status.Module{Loads: true, Nodes: nodes(6, func(i int, n *status.Node) {
				switch i {
				case 0:
					n.Delivery = &reasons.Problem{Reason: v1beta1.ReasonImageNotFound, Message: "no such image"}
				case 1, 2:
					n.Attempt = attempt(v1beta1.AttemptFailed, v1beta1.ReasonNoSuchDevice, "no device\n[ 12.3] kernel line")
				case 3:
					n.Ready = false
				}
			})},
			then: map[string]string{
				loaded: "False NoSuchDevice: Live on 0 of 6 nodes; NoSuchDevice on b, c: no device (kernel: [ 12.3] kernel line); ImageNotFound on " +
					"a: no such image; NodeNotReady on d; Loading on e, f",
			},
		},
		"more nodes than the operator names": {
			given: status.Module{Loads: true, Others: &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "exceeded quota"},
				Nodes: nodes(3, func(i int, n *status.Node) {
					n.Ready = i > 0
				})},
			then: map[string]string{loaded: "False DeliveryRefused: Live on 0 of 3 nodes; DeliveryRefused on b, c: exceeded quota; " +
				"NodeNotReady on a"},
		},
		"in use, and who uses it may not be evicted": {
			given: status.Module{Loads: true, Nodes: nodes(1, func(_ int, n *status.Node) {
				n.Attempt = attempt(v1beta1.AttemptInUse, v1beta1.ReasonInUse, "in use by pod t/app")
				n.Delivery = &reasons.Problem{Reason: v1beta1.ReasonDrainBlocked, Message: "t/app (denied by a webhook)"}
			})},
			then: map[string]string{loaded: "False DrainBlocked: Live on 0 of 1 node; DrainBlocked on a: t/app (denied by a webhook)"},
		},
		"live, and not usable": {
			given: status.Module{Loads: true, HasPlugin: true, Nodes: nodes(2, live, func(i int, n *status.Node) {
				n.Usable, n.Available = false, false
				n.Attempt = attempt(v1beta1.AttemptWaiting, v1beta1.ReasonNotUsable, "no device node /dev/nic0\n/dev/nic0 is no device")
			})},
			then: map[string]string{
				ready:   "False NotUsable: Live and ready on 0 of 2 nodes; NotUsable on a, b: no device node /dev/nic0",
				loaded:  "False NotUsable: Live and ready on 0 of 2 nodes; NotUsable on a, b: no device node /dev/nic0",
				devices: "False DevicesPending: The kernel module is not ready on any node yet",
			},
		},
		"a node without a mapping": {
			given: status.Module{Loads: true, Nodes: nodes(3, live, func(i int, n *status.Node) {
				if i == 1 {
					*n = status.Node{Name: n.Name, Ready: true, Wanted: true, Kernel: "5.4.0", Unmapped: unmapped}
				}
			})},
			then: map[string]string{
				ready:   "False NoKernelMapping: No kernel mapping matches 1 kernel (5.4.0) of 1 node: b",
				covered: "False NoKernelMapping: No kernel mapping matches 1 kernel (5.4.0) of 1 node: b",
				loaded:  "True Loaded: Live on 2 nodes",
			},
		},
		"no node with a mapping": {
			given: status.Module{Loads: true, Nodes: []status.Node{{Name: "a", Ready: true, Wanted: true, Kernel: "5.4.0", Unmapped: unmapped}}},
			then:  map[string]string{loaded: "False NoKernelMapping: No kernel mapping matches 1 kernel (5.4.0) of 1 node: a"},
		},
		"an image that cannot be named": {
			given: status.Module{Loads: true, Nodes: []status.Node{
				{Name: "a", Ready: true, Wanted: true, Kernel: "5.4.0", Unmapped: unmapped},
				{Name: "b", Ready: true, Wanted: true, Kernel: "6.1.0",
					Unmapped: &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: "containerImage: unknown variable FOO"}},
			}},
			then: map[string]string{
				ready: "False NoKernelMapping: Drover cannot name the image for 1 kernel (6.1.0): containerImage: unknown variable FOO; nodes: b; " +
					"No kernel mapping matches 1 kernel (5.4.0) of 1 node: a",
				covered: "False NoKernelMapping: Drover cannot name the image for 1 kernel (6.1.0): containerImage: unknown variable FOO; nodes: b; " +
					"No kernel mapping matches 1 kernel (5.4.0) of 1 node: a",
				loaded: "False NoKernelMapping: Drover cannot name the image for 1 kernel (6.1.0): containerImage: unknown variable FOO; nodes: b; " +
					"No kernel mapping matches 1 kernel (5.4.0) of 1 node: a",
			},
		},
		"a node that left is not missed": {
			given: status.Module{Loads: true, Nodes: nodes(2, live, func(i int, n *status.Node) {
				if i == 1 {
					n.Wanted, n.Ordered, n.Usable, n.Available = false, false, false, false
				}
			})},
			then: map[string]string{loaded: "True Loaded: Live on 1 node"},
		},
		"paused": {
			given: status.Module{Loads: true, Paused: true, Nodes: nodes(1)},
			then:  map[string]string{loaded: "False Paused: Live on 0 of 1 node; Loading on a"},
		},
		"leaving": {
			given: status.Module{Loads: true, Deleting: true, Nodes: nodes(3, live, func(i int, n *status.Node) {
				if i == 1 {
					n.Attempt = attempt(v1beta1.AttemptInUse, v1beta1.ReasonInUse, "used by process 7")
				}
			})},
			then: map[string]string{
				ready:  "False InUse: The Module is being deleted and must still leave 3 nodes; InUse on b: used by process 7; Unloading on a, c",
				loaded: "False InUse: The Module is being deleted and must still leave 3 nodes; InUse on b: used by process 7; Unloading on a, c",
			},
		},
		"leaving, every reason": {
			given: status.Module{Loads: true, Deleting: true, Nodes: nodes(5, func(i int, n *status.Node) {
				n.Silent, n.Ready, n.Paused = i < 4, i >= 3, i < 2
				if i < 1 {
					n.Attempt = attempt(v1beta1.AttemptFailed, v1beta1.ReasonUnloadFailed, "no")
				}
			})},
			then: map[string]string{
				loaded: "False UnloadFailed: The Module is being deleted and must still leave 5 nodes; UnloadFailed on a: no; Paused on b; " +
					"NodeNotReady on c; AgentMissing on d: the agent has not answered the order to unload for more than 2 minutes; Unloading on e",
			},
		},
		"leaving and paused": {
			given: status.Module{Loads: true, Deleting: true, Paused: true, Nodes: nodes(1)},
			then:  map[string]string{ready: "False Paused: The Module is being deleted and must still leave 1 node; Paused on a"},
		},
		"gone from everywhere": {
			given: status.Module{Loads: true, Deleting: true, Nodes: nodes(1, func(_ int, n *status.Node) { n.Pending = false })},
			then:  map[string]string{loaded: "False Unloading: The Module is being deleted and has left every node"},
		},
		"the loader was taken away": {
			given: status.Module{Nodes: nodes(2, func(i int, n *status.Node) { n.Pending = i == 0 })},
			then: map[string]string{
				ready:   "False Unloading: The Module no longer has a moduleLoader and must still leave 1 node; Unloading on a",
				covered: "True NotRequested: The Module has no moduleLoader",
			},
		},
		"the loader was taken away from more nodes than may change": {
			given: status.Module{Nodes: nodes(2), Rollout: &rollout.Plan{Total: 2, Limit: 1, Mass: []string{"a", "b"}}},
			then: map[string]string{loaded: "False MassDeselection: The Module no longer has a moduleLoader, and its kernel module is live on " +
				"2 nodes, but at most 1 may be unavailable at a time, so nothing is unloaded on a, b; restore spec.moduleLoader, or confirm by " +
				"setting the annotation drover.dev/confirm-deselection to the current time (RFC 3339)"},
		},
		"a paused node": {
			given: status.Module{Loads: true, Nodes: nodes(2, func(i int, n *status.Node) { n.Paused = i == 0 })},
			then:  map[string]string{loaded: "False Paused: Live on 0 of 2 nodes; Paused on a; Loading on b"},
		},
		"a plugin on the way": {
			given: status.Module{Loads: true, HasPlugin: true, Nodes: nodes(3, func(i int, n *status.Node) {
				if i < 2 {
					live(i, n)
				}
				n.PluginReady = i == 0
			})},
			then: map[string]string{devices: "False DevicesPending: The device plugin is ready on 1 of 2 nodes; not on b"},
		},
		"labels that are refused": {
			given: status.Module{Loads: true, HasPlugin: true, Nodes: nodes(3, live, func(i int, n *status.Node) {
				if n.PluginReady = i > 0; i == 0 {
					n.Labels = &reasons.Problem{Reason: v1beta1.ReasonWriteRefused, Message: "a policy says no"}
				}
			})},
			then: map[string]string{
				loaded: "True Loaded: Live on 3 nodes",
				devices: "False WriteRefused: The device plugin is ready on 2 of 3 nodes; not on a; Labels that pods go by are missing, or stay; " +
					"WriteRefused on a: a policy says no",
			},
		},
		"labels that are refused, without a plugin": {
			given: status.Module{Loads: true, Nodes: nodes(2, live, func(i int, n *status.Node) {
				if i == 0 {
					n.Labels = &reasons.Problem{Reason: v1beta1.ReasonWriteRefused, Message: "a policy says no"}
				}
			})},
			then: map[string]string{
				ready: "False WriteRefused: Labels that pods go by are missing, or stay; WriteRefused on a: a policy says no",
			},
		},
		"an older build": {
			given: status.Module{Loads: true, HasPlugin: true, Nodes: nodes(3, live, func(i int, n *status.Node) {
				n.Available = i == 0
				n.PluginReady = true
				if i == 1 {
					n.Unmapped, n.Delivery = &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: "unknown variable"},
						&reasons.Problem{Reason: v1beta1.ReasonPullFailed}
				}
			})},
			then: map[string]string{
				loaded: "False NoKernelMapping: Live on 1 of 3 nodes, another build is live on 2 nodes; NoKernelMapping on b: unknown variable; " +
					"Loading on c",
				devices: "True DevicesReady: The device plugin is ready on 3 nodes",
			},
		},
		"a plugin without a loader": {
			given: status.Module{HasPlugin: true, Nodes: nodes(1, func(_ int, n *status.Node) { n.PluginReady, n.Pending = true, false })},
			then: map[string]string{
				ready:   "True Ready: Every selected node has everything that the Module asks for",
				covered: "True NotRequested: The Module has no moduleLoader",
				loaded:  "True NotRequested: The Module has no moduleLoader",
				devices: "True DevicesReady: The device plugin is ready on 1 node",
			},
		},
		"a plugin that cannot be made": {
			given: status.Module{HasPlugin: true, Nodes: nodes(1),
				PluginProblem: &reasons.Problem{Reason: v1beta1.ReasonDevicesPending, Message: "refused"}},
			then: map[string]string{devices: "False DevicesPending: refused"},
		},
		"DRA": {
			given: status.Module{Loads: true, HasDRA: true, Nodes: nodes(2, live, func(i int, n *status.Node) { n.PluginReady = i == 0 })},
			then:  map[string]string{ready: "False DevicesPending: The DRA driver is ready on 1 of 2 nodes; not on b"},
		},
		"under way": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(4, some(1)), Rollout: &rollout.Plan{
				Total: 4, Done: 1, Underway: 1, Waiting: 2, Limit: 1, Unavailable: 1, Hold: hold("c", "d"),
			}},
			then: map[string]string{loaded: "False RollingOut: Live on 1 of 4 nodes, another build is live on 3 nodes; rollout: 1 of 4 nodes have " +
				"generation 4, 1 under way, " +
				"1 of at most 1 unavailable; Loading on b; RollingOut on c, d"},
		},
		"the first node": {
			given: status.Module{Loads: true, Generation: 2, Nodes: nodes(2, old), Rollout: &rollout.Plan{
				Total: 2, Underway: 1, Waiting: 1, Limit: 1, Trial: true, Hold: hold("b"),
			}},
			then: map[string]string{loaded: "False RollingOut: Live on 0 of 2 nodes, another build is live on 2 nodes; rollout: 0 of 2 nodes have " +
				"generation 2, 1 under way, " +
				"the first node must hold the change before the others begin; Loading on a; RollingOut on b"},
		},
	}
	says(t, cases)
}

// says holds the conditions of each case against what they must say.
func says(t *testing.T, cases map[string]told) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := status.Compute(&tc.given)
			for kind, want := range tc.then {
				if diff := cmp.Diff(want, line(got.Conditions, kind)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", kind, diff)
				}
			}
		})
	}
}
