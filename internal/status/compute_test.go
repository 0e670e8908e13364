// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/status"
)

// nodes makes n wanted, ready nodes a, b, … with an order.
func nodes(n int, change ...func(int, *status.Node)) []status.Node {
	made := make([]status.Node, 0, n)
	for i := range n {
		node := status.Node{Name: string(rune('a' + i)), Ready: true, Wanted: true, Ordered: true, Pending: true, Kernel: "6.1.0"}
		for _, f := range change {
			f(i, &node)
		}
		made = append(made, node)
	}
	return made
}

func live(_ int, n *status.Node) { n.Live, n.Usable, n.Available = true, true, true }

func attempt(state v1beta1.AttemptState, reason, message string) *v1beta1.NodeModuleAttempt {
	return &v1beta1.NodeModuleAttempt{State: state, Reason: reason, Message: message}
}

// line is a condition in one line.
func line(conditions []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func TestConditions(t *testing.T) {
	const (
		ready, covered, loaded, devices = v1beta1.ConditionReady, v1beta1.ConditionKernelsCovered, v1beta1.ConditionLoaded, v1beta1.ConditionDevicesReady
	)
	unmapped := &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping}
	cases := map[string]struct {
		given status.Module
		then  map[string]string
	}{
		"all is well": {
			given: status.Module{Loads: true, Nodes: nodes(2, live)},
			then: map[string]string{
				ready:   "True Ready: Everything asked for is there on every selected node",
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
				ready:  "True Ready: Everything asked for is there on every selected node",
				loaded: "True MixedContent: Live on 3 nodes; r/nic:1 is not the same everywhere: sha256:aa on a, c, sha256:bb on b",
			},
		},
		"an image with content of its own for each architecture": {
			given: status.Module{Loads: true, Nodes: nodes(2, live, func(i int, n *status.Node) {
				n.Content = &status.Content{Image: "r/nic:1", Same: []string{"id amd64", "id arm64"}[i], Digest: []string{"sha256:aa", "sha256:bb"}[i]}
			})},
			then: map[string]string{loaded: "True Loaded: Live on 2 nodes"},
		},
		"nothing is changed in the cluster": {
			given: status.Module{Loads: true, Nodes: nodes(1, live), ReadOnly: &reasons.Problem{Reason: v1beta1.ReasonPeerActive, Message: "KMM is at work"}},
			then:  map[string]string{ready: "False PeerActive: KMM is at work", loaded: "True Loaded: Live on 1 node"},
		},
		"no node": {
			given: status.Module{Loads: true},
			then: map[string]string{
				ready:   "False NoNodes: The selector chooses no node on which kernel modules can be managed",
				covered: "True NoNodes: The selector chooses no node on which kernel modules can be managed",
				loaded:  "False NoNodes: The selector chooses no node on which kernel modules can be managed",
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
				loaded: "False NoSuchDevice: Live on 0 of 2 nodes; NoSuchDevice on a, b: no device; the annotation drover.dev/retry on b is ignored: it is no time (RFC 3339)",
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
				loaded: "False NoSuchDevice: Live on 0 of 6 nodes; NoSuchDevice on b, c: no device (kernel: [ 12.3] kernel line); ImageNotFound on a: no such image; NodeNotReady on d; Loading on e, f",
			},
		},
		"more nodes than the operator names": {
			given: status.Module{Loads: true, Others: &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "exceeded quota"}, Nodes: nodes(3, func(i int, n *status.Node) {
				n.Ready = i > 0
			})},
			then: map[string]string{loaded: "False DeliveryRefused: Live on 0 of 3 nodes; DeliveryRefused on b, c: exceeded quota; NodeNotReady on a"},
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
				devices: "False DevicesPending: The kernel module is ready on no node yet",
			},
		},
		"a node without a mapping": {
			given: status.Module{Loads: true, Nodes: nodes(3, live, func(i int, n *status.Node) {
				if i == 1 {
					*n = status.Node{Name: n.Name, Ready: true, Wanted: true, Kernel: "5.4.0", Unmapped: unmapped}
				}
			})},
			then: map[string]string{
				ready:   "False NoKernelMapping: No image for 1 kernel (5.4.0) of 1 node: b",
				covered: "False NoKernelMapping: No image for 1 kernel (5.4.0) of 1 node: b",
				loaded:  "True Loaded: Live on 2 nodes",
			},
		},
		"no node with a mapping": {
			given: status.Module{Loads: true, Nodes: []status.Node{{Name: "a", Ready: true, Wanted: true, Kernel: "5.4.0", Unmapped: unmapped}}},
			then:  map[string]string{loaded: "False NoKernelMapping: No image for 1 kernel (5.4.0) of 1 node: a"},
		},
		"an image that cannot be named": {
			given: status.Module{Loads: true, Nodes: []status.Node{
				{Name: "a", Ready: true, Wanted: true, Kernel: "5.4.0", Unmapped: unmapped},
				{Name: "b", Ready: true, Wanted: true, Kernel: "6.1.0", Unmapped: &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: "containerImage: unknown variable FOO"}},
			}},
			then: map[string]string{
				ready:   "False NoKernelMapping: The image for 1 kernel (6.1.0) cannot be named: containerImage: unknown variable FOO; nodes: b; No image for 1 kernel (5.4.0) of 1 node: a",
				covered: "False NoKernelMapping: The image for 1 kernel (6.1.0) cannot be named: containerImage: unknown variable FOO; nodes: b; No image for 1 kernel (5.4.0) of 1 node: a",
				loaded:  "False NoKernelMapping: The image for 1 kernel (6.1.0) cannot be named: containerImage: unknown variable FOO; nodes: b; No image for 1 kernel (5.4.0) of 1 node: a",
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
				ready:  "False InUse: The Module is being deleted and is still to be taken from 3 nodes; InUse on b: used by process 7; Unloading on a, c",
				loaded: "False InUse: The Module is being deleted and is still to be taken from 3 nodes; InUse on b: used by process 7; Unloading on a, c",
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
				loaded: "False UnloadFailed: The Module is being deleted and is still to be taken from 5 nodes; UnloadFailed on a: no; Paused on b; " +
					"NodeNotReady on c; AgentMissing on d: the order to unload has had no answer for more than 2 minutes; Unloading on e",
			},
		},
		"leaving and paused": {
			given: status.Module{Loads: true, Deleting: true, Paused: true, Nodes: nodes(1)},
			then:  map[string]string{ready: "False Paused: The Module is being deleted and is still to be taken from 1 node; Paused on a"},
		},
		"gone from everywhere": {
			given: status.Module{Loads: true, Deleting: true, Nodes: nodes(1, func(_ int, n *status.Node) { n.Pending = false })},
			then:  map[string]string{loaded: "False Unloading: The Module is being deleted and is on no node"},
		},
		"the loader was taken away": {
			given: status.Module{Nodes: nodes(2, func(i int, n *status.Node) { n.Pending = i == 0 })},
			then: map[string]string{
				ready:   "False Unloading: The Module has no moduleLoader any more and is still to be taken from 1 node; Unloading on a",
				covered: "True NotRequested: The Module has no moduleLoader",
			},
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
		"an older build": {
			given: status.Module{Loads: true, HasPlugin: true, Nodes: nodes(3, live, func(i int, n *status.Node) {
				n.Available = i == 0
				n.PluginReady = true
				if i == 1 {
					n.Unmapped, n.Delivery = &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: "unknown variable"}, &reasons.Problem{Reason: v1beta1.ReasonPullFailed}
				}
			})},
			then: map[string]string{
				loaded:  "False NoKernelMapping: Live on 1 of 3 nodes, another build is live on 2 nodes; NoKernelMapping on b: unknown variable; Loading on c",
				devices: "True DevicesReady: The device plugin is ready on 3 nodes",
			},
		},
		"a plugin without a loader": {
			given: status.Module{HasPlugin: true, Nodes: nodes(1, func(_ int, n *status.Node) { n.PluginReady, n.Pending = true, false })},
			then: map[string]string{
				ready:   "True Ready: Everything asked for is there on every selected node",
				covered: "True NotRequested: The Module has no moduleLoader",
				loaded:  "True NotRequested: The Module has no moduleLoader",
				devices: "True DevicesReady: The device plugin is ready on 1 node",
			},
		},
		"a plugin that cannot be made": {
			given: status.Module{HasPlugin: true, Nodes: nodes(1), PluginProblem: &reasons.Problem{Reason: v1beta1.ReasonDevicesPending, Message: "refused"}},
			then:  map[string]string{devices: "False DevicesPending: refused"},
		},
		"DRA": {
			given: status.Module{Loads: true, HasDRA: true, Nodes: nodes(2, live, func(i int, n *status.Node) { n.PluginReady = i == 0 })},
			then:  map[string]string{ready: "False DevicesPending: The DRA driver is ready on 1 of 2 nodes; not on b"},
		},
	}
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

func TestRebuildIsToldWhenItIsEverywhere(t *testing.T) {
	before, asked := 1, 2
	cases := map[string]struct {
		given status.Module
		then  *int
	}{
		"everywhere":         {status.Module{Loads: true, Nodes: nodes(2, live)}, &asked},
		"not on one node":    {status.Module{Loads: true, Nodes: nodes(2, func(i int, n *status.Node) { n.Available = i == 0 })}, &before},
		"no kernel mapping":  {status.Module{Loads: true, Nodes: nodes(1, func(_ int, n *status.Node) { n.Unmapped = &reasons.Problem{} })}, &asked},
		"a node that left":   {status.Module{Loads: true, Nodes: nodes(1, func(_ int, n *status.Node) { n.Wanted = false })}, &asked},
		"nothing to load":    {status.Module{Nodes: nodes(1)}, &asked},
		"the Module goes":    {status.Module{Loads: true, Deleting: true}, &before},
		"no node, no doubts": {status.Module{Loads: true}, &asked},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.given.RebuildTrigger, tc.given.RebuiltTrigger = &asked, &before
			if diff := cmp.Diff(tc.then, status.Compute(&tc.given).ImageRebuildTriggerGeneration); diff != "" {
				t.Errorf("imageRebuildTriggerGeneration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumbersOfUpstream(t *testing.T) {
	module := status.Module{Loads: true, HasPlugin: true, Generation: 7, Nodes: nodes(4, func(i int, n *status.Node) {
		n.Ordered = i < 3
		n.Usable = i < 2 // the second has an older version, as ordered: it serves until its turn comes
		n.Available = i < 1
		n.PluginReady = i < 1
	})}
	got := status.Compute(&module)
	module.HasPlugin, module.HasDRA = false, true
	if dra := status.Compute(&module); dra.DRA != got.DevicePlugin || dra.DevicePlugin != (v1beta1.DaemonSetStatus{}) {
		t.Errorf("a DRA driver's numbers: %+v, of a device plugin %+v", dra.DRA, dra.DevicePlugin)
	}
	want := v1beta1.ModuleStatus{
		ObservedGeneration: 7,
		ModuleLoader:       v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 4, DesiredNumber: 3, AvailableNumber: 2},
		DevicePlugin:       v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 4, DesiredNumber: 4, AvailableNumber: 1},
	}
	got.Conditions = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// TestOrderOfFactsDoesNotMatter: the cache lists in any order, and a status must not change for that.
func TestOrderOfFactsDoesNotMatter(t *testing.T) {
	reasons := []string{v1beta1.ReasonNoSuchDevice, v1beta1.ReasonUnknownSymbol, v1beta1.ReasonTimeout}
	given := status.Module{Loads: true, HasPlugin: true, Nodes: nodes(12, func(i int, n *status.Node) {
		n.Attempt = attempt(v1beta1.AttemptFailed, reasons[i%3], "on "+n.Name)
	})}
	want := status.Compute(&given)
	source := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		source.Shuffle(len(given.Nodes), func(i, j int) { given.Nodes[i], given.Nodes[j] = given.Nodes[j], given.Nodes[i] })
		if diff := cmp.Diff(want, status.Compute(&given)); diff != "" {
			t.Fatalf("another order gives another status:\n%s", diff)
		}
	}
}

func TestCarryKeepsTransitionTimes(t *testing.T) {
	earlier, later := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	module := status.Module{Loads: true, Nodes: nodes(2)}
	first := status.Carry(v1beta1.ModuleStatus{}, status.Compute(&module), earlier)
	if diff := cmp.Diff(first, status.Carry(first, status.Compute(&module), later)); diff != "" {
		t.Errorf("nothing changed, and yet:\n%s", diff)
	}
	module.Nodes = nodes(2, live)
	second := status.Carry(first, status.Compute(&module), later)
	times := map[string]metav1.Time{}
	for _, c := range second.Conditions {
		times[c.Type] = c.LastTransitionTime
	}
	want := map[string]metav1.Time{
		v1beta1.ConditionReady: later, v1beta1.ConditionLoaded: later,
		v1beta1.ConditionKernelsCovered: earlier, v1beta1.ConditionDevicesReady: earlier,
	}
	if diff := cmp.Diff(want, times); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}
