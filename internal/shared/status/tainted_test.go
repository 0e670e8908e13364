// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/status"
)

// TestATaintIsToldAsWhatItAsksFor: who asked for an unload, on which nodes, and what ends it.
func TestATaintIsToldAsWhatItAsksFor(t *testing.T) {
	const (
		loaded = v1beta1.ConditionLoaded
		asks   = "the taint example.com/upgrade asks for the unload; tolerate it in spec.tolerations, or remove the taint"
	)
	// asked has its order, and out has carried it out.
	asked := func(_ int, n *status.Node) {
		*n = status.Node{Name: n.Name, Ready: true, Pending: true, Tainted: "example.com/upgrade"}
	}
	out := func(i int, n *status.Node) { asked(i, n); n.Pending = false }
	busy := func(i int, n *status.Node) {
		asked(i, n)
		n.Attempt = attempt(v1beta1.AttemptInUse, v1beta1.ReasonInUse, "pod x")
	}
	at := func(i int, f, others func(int, *status.Node)) func(int, *status.Node) {
		return func(j int, n *status.Node) {
			if i == j {
				f(j, n)
			} else {
				others(j, n)
			}
		}
	}
	cases := map[string]told{
		"to be unloaded": {
			given: status.Module{Loads: true, Nodes: nodes(3, at(1, asked, live))},
			then: map[string]string{
				v1beta1.ConditionReady: "True Ready: Every selected node has everything that the Module asks for",
				loaded:                 "True Tainted: Live on 2 nodes; Tainted on b: " + asks,
			},
		},
		"unloaded": {
			given: status.Module{Loads: true, Nodes: nodes(3, at(1, out, live))},
			then:  map[string]string{loaded: "True Tainted: Live on 2 nodes; Tainted on b: " + asks},
		},
		"unloaded, and others are on their way": {
			given: status.Module{Loads: true, Nodes: nodes(3, at(1, out, func(int, *status.Node) {}))},
			then:  map[string]string{loaded: "False Loading: Live on 0 of 2 nodes; Loading on a, c; Tainted on b: " + asks},
		},
		"unloaded everywhere": {
			given: status.Module{Loads: true, HasPlugin: true, Nodes: nodes(1, out)},
			then: map[string]string{
				loaded:                        "False Tainted: spec.selector matches no node that can load kernel modules; Tainted on a: " + asks,
				v1beta1.ConditionDevicesReady: "False Tainted: spec.selector matches no node that can load kernel modules; Tainted on a: " + asks,
			},
		},
		"in use": {
			given: status.Module{Loads: true, Nodes: nodes(2, at(1, busy, live))},
			then:  map[string]string{loaded: "True Tainted: Live on 1 node; Tainted on b: " + asks},
		},
		"too many": {
			given: status.Module{Loads: true, Nodes: nodes(3, at(2, out, asked)),
				Rollout: &rollout.Plan{Total: 3, Limit: 1, Mass: []string{"a", "b"}, Out: []string{"c"}}},
			then: map[string]string{loaded: "False MassDeselection: 2 nodes are no longer selected, without a mapping, or told to unload by the " +
				"taint example.com/upgrade, and c was told so before, but at most 1 may be unavailable at a time, so nothing is unloaded on a, " +
				"b; restore the labels or the mapping, remove the taints, or confirm by setting the annotation " +
				"drover.dev/confirm-deselection to the current time (RFC 3339)"},
		},
		"others wait for its place": {
			given: status.Module{Loads: true, Generation: 4, Nodes: nodes(2, at(1, out, old)), Rollout: &rollout.Plan{
				Total: 2, Waiting: 1, Limit: 1, Unavailable: 1, Out: []string{"b"}, Hold: hold("a"),
			}},
			then: map[string]string{loaded: "False RollingOut: Live on 0 of 1 node, another build is live on 1 node; rollout: 0 of 2 nodes " +
				"have generation 4, 1 of at most 1 unavailable; b, told to unload by a taint, takes a place of maxUnavailable until the taint " +
				"goes; RollingOut on a; Tainted on b: " + asks},
		},
		"of a Module that is being deleted": {
			given: status.Module{Loads: true, Deleting: true, Nodes: nodes(1, asked)},
			then:  map[string]string{loaded: "False Unloading: The Module is being deleted and must still leave 1 node; Unloading on a"},
		},
	}
	says(t, cases)

	of := func(m status.Module, change ...func(int, *status.Node)) string {
		m.Nodes = nodes(1, change...)
		p, open := status.Why(&m, &m.Nodes[0])
		if !open {
			return ""
		}
		return p.Reason
	}
	for name, tc := range map[string]struct{ got, want string }{
		"told":        {of(status.Module{Loads: true}, asked), v1beta1.ReasonTainted},
		"in use":      {of(status.Module{Loads: true}, busy), v1beta1.ReasonInUse},
		"away":        {of(status.Module{Loads: true}, asked, func(_ int, n *status.Node) { n.Ready = false }), v1beta1.ReasonNodeNotReady},
		"paused":      {of(status.Module{Loads: true, Paused: true}, asked), v1beta1.ReasonPaused},
		"deleted":     {of(status.Module{Loads: true, Deleting: true}, asked), v1beta1.ReasonUnloading},
		"carried out": {of(status.Module{Loads: true}, out), ""},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %q, want %q", name, tc.got, tc.want)
		}
	}
}
