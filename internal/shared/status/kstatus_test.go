// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	ours "github.com/drover-project/drover/internal/shared/status"
)

// TestToolsReadTheStatus as kstatus does, and so Flux, Argo CD, kpt and others.
func TestToolsReadTheStatus(t *testing.T) {
	inUse := func(_ int, n *ours.Node) {
		n.Attempt = attempt(v1beta1.AttemptInUse, v1beta1.ReasonInUse, "used by a pod")
	}
	quarantined := func(_ int, n *ours.Node) {
		n.Attempt = attempt(v1beta1.AttemptFailed, v1beta1.ReasonQuarantined, "the node went down")
	}
	cases := map[string]struct {
		given      ours.Module
		generation int64 // of the Module now
		leaving    bool
		then       status.Status
		says       string // the message, if any
	}{
		"all is well": {given: ours.Module{Loads: true, Generation: 2, Nodes: nodes(2, live)}, generation: 2, then: status.CurrentStatus},
		"loading": {
			given: ours.Module{Loads: true, Generation: 2, Nodes: nodes(2)}, generation: 2,
			then: status.InProgressStatus, says: "Live on 0 of 2 nodes; Loading on a, b",
		},
		"failing": {
			given: ours.Module{Loads: true, Generation: 2, Nodes: nodes(1, inUse)}, generation: 2,
			then: status.InProgressStatus, says: "Live on 0 of 1 node; InUse on a: used by a pod",
		},
		"failed for good": {
			given: ours.Module{Loads: true, Generation: 2, Nodes: nodes(2, quarantined)}, generation: 2,
			then: status.FailedStatus, says: "Live on 0 of 2 nodes; Quarantined on a, b: the node went down",
		},
		"failed for good on one, on its way on another": {
			given: ours.Module{Loads: true, Generation: 2,
				Nodes: append(nodes(1, quarantined), ours.Node{Name: "z", Ready: true, Wanted: true})},
			generation: 2,
			then:       status.InProgressStatus,
		},
		"failed for good on one, live on another": {
			given: ours.Module{Loads: true, Generation: 2, Nodes: nodes(2, func(i int, n *ours.Node) {
				if i == 0 {
					live(i, n)
				} else {
					quarantined(i, n)
				}
			})}, generation: 2, then: status.FailedStatus,
		},
		"failed for good, and a plugin is still starting elsewhere": {
			given: ours.Module{Loads: true, HasPlugin: true, Generation: 2, Nodes: nodes(2, func(i int, n *ours.Node) {
				if i == 0 {
					live(i, n)
				} else {
					quarantined(i, n)
				}
			})}, generation: 2, then: status.InProgressStatus,
		},
		"no kernel is covered": {
			given: ours.Module{Loads: true, Generation: 2, Nodes: nodes(1, func(_ int, n *ours.Node) {
				n.Unmapped, n.Ordered, n.Pending = &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping}, false, false
			})}, generation: 2, then: status.FailedStatus, says: "No kernel mapping matches 1 kernel (6.1.0) of 1 node: a",
		},
		"the rollout stopped behind a node that failed for good": {
			given: ours.Module{
				Loads: true, Generation: 2, Nodes: append(nodes(1, quarantined), ours.Node{Name: "z", Ready: true, Wanted: true, Live: true}),
				Rollout: &rollout.Plan{Halt: rollout.HaltFailed, Waiting: 1, Total: 2, Hold: map[string]bool{"z": true}},
			}, generation: 2, then: status.FailedStatus,
		},
		"nodes that cannot have it": {
			given: ours.Module{Loads: true, Generation: 2,
				Unsupported: []ours.Unsupported{{Name: "win-1", Why: "runs windows"}, {Name: "a", Why: "has the processor wasm32"}}},
			generation: 2, then: status.FailedStatus,
			says: "spec.selector matches no node that can load kernel modules: a has the processor wasm32, win-1 runs windows",
		},
		"no node at all, which an autoscaler may bring": {given: ours.Module{Loads: true, Generation: 2}, generation: 2,
			then: status.InProgressStatus},
		"a device class of somebody else's": {
			given: ours.Module{Loads: true, HasDRA: true, Generation: 2, Nodes: nodes(1, live),
				PluginProblem: &reasons.Problem{Reason: v1beta1.ReasonDeviceClassConflict}},
			generation: 2, then: status.FailedStatus,
		},
		"read-only": {
			given: ours.Module{Loads: true, Generation: 2, Nodes: nodes(1, quarantined),
				ReadOnly: &reasons.Problem{Reason: v1beta1.ReasonPeerActive}},
			generation: 2, then: status.InProgressStatus,
		},
		"well, but changed since": {given: ours.Module{Loads: true, Generation: 2, Nodes: nodes(2, live)}, generation: 3,
			then: status.InProgressStatus},
		"leaving": {
			given: ours.Module{Loads: true, Generation: 3, Deleting: true, Nodes: nodes(1, live)}, generation: 3, leaving: true,
			then: status.TerminatingStatus,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic", Generation: tc.generation},
				Status: ours.Compute(&tc.given)}
			if tc.leaving {
				m.DeletionTimestamp = &metav1.Time{}
				m.DeletionTimestamp.Time = metav1.Now().Time
			}
			got := read(t, m)
			if got.Status != tc.then || tc.says != "" && got.Message != tc.says {
				t.Errorf("%s: %s; want %s: %s", got.Status, got.Message, tc.then, tc.says)
			}
		})
	}
	t.Run("a NodeModulesConfig is a list of orders, and no promise", func(t *testing.T) {
		if got := read(t, &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: "node",
			Generation: 5}}); got.Status != status.CurrentStatus {
			t.Errorf("%s: %s", got.Status, got.Message)
		}
	})
}

func read(t *testing.T, object runtime.Object) *status.Result {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	return result
}
