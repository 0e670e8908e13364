// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/rollout"
)

const upgrade = "example.com/upgrade"

func taintedBy(n *Node, key string) {
	n.Node.Spec.Taints = append(n.Node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
}

// TestATaintThatAsksForIt: a listed taint is an order to unload, at once, and of nodes that are not
// paused.
func TestATaintThatAsksForIt(t *testing.T) {
	deselect := func(m *v1beta1.Module, _ *Node) { m.Spec.Selector = map[string]string{"nic": "no"} }
	for name, tc := range map[string]struct {
		given func(m *v1beta1.Module, n *Node)
		other bool // the taint is not listed
		then  string
		keep  bool
	}{
		"live":                        {then: ReasonTainted},
		"ordered, and not live yet":   {given: func(_ *v1beta1.Module, n *Node) { n.Live = nil }, then: ReasonTainted},
		"live, and no longer ordered": {given: func(_ *v1beta1.Module, n *Node) { n.Order = nil }, then: ReasonTainted},
		"another taint":               {other: true},
		"tolerated": {given: func(m *v1beta1.Module, _ *Node) {
			m.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}},
		"no longer selected, either":     {given: deselect, then: ReasonTainted},
		"another one, and not selected":  {given: deselect, other: true, then: ReasonDeselected, keep: true},
		"without a moduleLoader, either": {given: func(m *v1beta1.Module, _ *Node) { m.Spec.ModuleLoader = nil }, then: ReasonTainted},
		"of a Module that is being deleted": {
			given: func(m *v1beta1.Module, _ *Node) { m.DeletionTimestamp = &metav1.Time{Time: noon} }, then: ReasonDeleted,
		},
		"paused": {
			given: func(m *v1beta1.Module, _ *Node) { m.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} }, keep: true,
		},
		"a paused node": {
			given: func(_ *v1beta1.Module, n *Node) { n.Node.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} }, keep: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := given(), behind(t, "a")
			taintedBy(&n, upgrade)
			if tc.given != nil {
				tc.given(m, &n)
			}
			p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon}
			if !tc.other {
				p.Taints = placement.UnloadTaints{upgrade}
			}
			if a := p.Aim(&n); a.Unload != tc.then || a.Keep != tc.keep || tc.then == "" && !tc.keep && a.Order == nil {
				t.Errorf("unload %q, keep %t, order %v", a.Unload, a.Keep, a.Order)
			}
		})
	}
}

// TestTaintsUnloadNoFleet: as many nodes as may be unavailable go without a grace and without a
// place, whoever else is unavailable. More than that, counting those that are out already, wait for
// a confirmation.
func TestTaintsUnloadNoFleet(t *testing.T) {
	for name, tc := range map[string]struct {
		tainted, out, away int
		confirmed          bool
		start, ask         int
	}{
		"one":                            {tainted: 1, start: 1},
		"as many as may be unavailable":  {tainted: 2, start: 2},
		"others are unavailable":         {tainted: 2, away: 2, start: 2},
		"one after the other":            {tainted: 1, out: 1, start: 1},
		"one too many after the others":  {tainted: 1, out: 2, ask: 1},
		"too many":                       {tainted: 3, ask: 3},
		"too many, and confirmed":        {tainted: 3, confirmed: true, start: 3},
		"too many with those out before": {tainted: 2, out: 1, ask: 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 2}}
			if tc.confirmed {
				metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.ConfirmDeselectionAnnotation, noon.Format(time.RFC3339))
			}
			p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon, Taints: placement.UnloadTaints{upgrade}}
			p.Memory.Unwanted = map[types.UID]time.Time{}
			var nodes []Node
			for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
				n := behind(t, name)
				switch {
				case i < tc.tainted:
					taintedBy(&n, upgrade)
				case i < tc.tainted+tc.out:
					taintedBy(&n, upgrade)
					n.Config, n.Entry = nil, rollout.Entry{}
				case i < tc.tainted+tc.out+tc.away:
					n.Node.Status.Conditions[0].Status = corev1.ConditionFalse
				}
				nodes = append(nodes, n)
			}
			aims := p.Aims(nodes)
			parts, _ := p.Parts(nodes, aims)
			r := rollout.Make(parts, rollout.PolicyOf(m), noon)
			told := 0
			for _, pl := range p.Make(nodes, aims, r) {
				if o := pl.Step().Write; o != nil && o.State == v1beta1.NodeModuleAbsent && o.Reason == ReasonTainted {
					told++
				}
			}
			if told != tc.start || len(r.Mass) != tc.ask || len(r.Out) != tc.out || r.Unavailable != tc.start+tc.out+tc.away {
				t.Errorf("%d are told to unload and %d wait, instead of %d and %d: %+v", told, len(r.Mass), tc.start, tc.ask, r)
			}
		})
	}
}
