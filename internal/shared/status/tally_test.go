// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
)

func TestCount(t *testing.T) {
	unmapped := &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping}
	mixed := func(i int, n *status.Node) {
		switch i {
		case 0, 1:
			live(i, n)
		case 2:
			n.Attempt = attempt(v1beta1.AttemptFailed, v1beta1.ReasonNoSuchDevice, "no device")
		case 3:
			n.Attempt = attempt(v1beta1.AttemptInUse, v1beta1.ReasonInUse, "busy")
		case 4:
			n.Ready = false
		case 5, 6:
			n.Ordered, n.Pending, n.Unmapped, n.Kernel = false, false, unmapped, "5.4.0"
		case 7:
			n.Wanted, n.Live = false, true
		}
	}
	type counts map[status.NodeState]int
	cases := map[string]struct {
		given   status.Module
		states  counts
		failing map[string]int
		kernels int
	}{
		"nothing": {},
		"some of each": {
			given: status.Module{Loads: true, Nodes: nodes(9, mixed)},
			states: counts{status.NodeReady: 2, status.NodeFailed: 2, status.NodeWaiting: 1, status.NodeUncovered: 2, status.NodeUnloading: 1,
				status.NodeLoading: 1},
			failing: map[string]int{v1beta1.ReasonNoSuchDevice: 1, v1beta1.ReasonInUse: 1, v1beta1.ReasonNoKernelMapping: 2},
			kernels: 1,
		},
		"leaving": {
			given:   status.Module{Loads: true, Deleting: true, Nodes: nodes(9, mixed)},
			states:  counts{status.NodeUnloading: 7},
			failing: map[string]int{v1beta1.ReasonNoSuchDevice: 1, v1beta1.ReasonInUse: 1},
		},
		"loads nothing": {given: status.Module{Nodes: nodes(2, func(_ int, n *status.Node) { n.Pending = false })}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := status.Tally{States: map[status.NodeState]int{}, Failing: map[string]int{}, UncoveredKernels: tc.kernels}
			for _, s := range status.NodeStates {
				want.States[s] = tc.states[s]
			}
			for reason, n := range tc.failing {
				want.Failing[reason] = n
			}
			if diff := cmp.Diff(want, status.Count(&tc.given)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
