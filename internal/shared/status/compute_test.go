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
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
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

func hold(names ...string) map[string]bool {
	held := map[string]bool{}
	for _, name := range names {
		held[name] = true
	}
	return held
}

// old has the build that the Module asked for before.
func old(_ int, n *status.Node) { n.Live, n.Usable = true, true }

// some have the new build, and the others the old one.
func some(done int) func(int, *status.Node) {
	return func(i int, n *status.Node) {
		old(i, n)
		n.Available = i < done
	}
}

// withImage asks for an image that is built in the cluster.
func withImage(kernel string, p *reasons.Problem) func(int, *status.Node) {
	return func(_ int, n *status.Node) {
		n.Kernel, n.Image = kernel, &desired.Image{Kernel: kernel, Architecture: "amd64", Problem: p}
	}
}

func TestRebuildIsToldWhenItIsEverywhere(t *testing.T) {
	before, asked := 1, 2
	cases := map[string]struct {
		given status.Module
		then  *int
	}{
		"everywhere":      {status.Module{Loads: true, Nodes: nodes(2, live)}, &asked},
		"not on one node": {status.Module{Loads: true, Nodes: nodes(2, func(i int, n *status.Node) { n.Available = i == 0 })}, &before},
		"no kernel mapping": {status.Module{Loads: true, Nodes: nodes(1, func(_ int, n *status.Node) { n.Unmapped = &reasons.Problem{} })},
			&asked},
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

// TestOrderOfFactsDoesNotMatter: the cache lists in any order, and a status must not change for
// that.
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

// TestARefusedStartupTaintIsSaid where all else is well, and nothing before it.
func TestARefusedStartupTaintIsSaid(t *testing.T) {
	refused := &reasons.Problem{Reason: v1beta1.ReasonStartupTaintDenied, Message: "not listed"}
	for name, tc := range map[string]struct {
		given status.Module
		then  string
	}{
		"all is well":     {status.Module{TaintProblem: refused}, v1beta1.ReasonStartupTaintDenied},
		"none is refused": {status.Module{}, v1beta1.ReasonReady},
		"another trouble": {status.Module{TaintProblem: refused, HasPlugin: true,
			PluginProblem: &reasons.Problem{Reason: v1beta1.ReasonDeviceClassConflict}}, v1beta1.ReasonDeviceClassConflict},
		"on its way out": {status.Module{TaintProblem: refused, Deleting: true}, v1beta1.ReasonUnloading},
	} {
		if got := status.Compute(&tc.given).Conditions[0]; got.Reason != tc.then {
			t.Errorf("%s: Ready is %s: %s, want %s", name, got.Reason, got.Message, tc.then)
		}
	}
}
