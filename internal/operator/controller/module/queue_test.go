// SPDX-License-Identifier: Apache-2.0

package module

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/strikes"
)

// fleet are nodes that wait for their first delivery, and the controller that has few slots.
type fleet struct {
	module  *v1beta1.Module
	nodes   []*corev1.Node
	verdict strikes.Verdict
	clock   *clocktesting.FakePassiveClock
	control *Controller
}

func waiting(names ...string) *fleet {
	f := &fleet{clock: clocktesting.NewFakePassiveClock(noon)}
	f.control = New(nil, nil, Options{AgentImage: "agent", DeliveryMaxInFlight: 1, Clock: f.clock})
	f.module = &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "drivers", Name: "m", UID: "m", ResourceVersion: "1"},
		Spec: v1beta1.ModuleSpec{ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
			Modprobe:       v1beta1.ModprobeSpec{ModuleName: "m"},
			KernelMappings: []v1beta1.KernelMapping{{Regexp: "^.+$", ContainerImage: "registry.example/m:1"}},
		}}},
	}
	for _, name := range names {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), ResourceVersion: "1", Labels: map[string]string{corev1.LabelOSStable: "linux"},
		}}
		node.Status.NodeInfo = corev1.NodeSystemInfo{
			KernelVersion: "6.1.0-37-amd64", KubeletVersion: "v1.36.0", ContainerRuntimeVersion: "containerd://2.1.4", BootID: "boot",
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		f.nodes = append(f.nodes, node)
	}
	return f
}

// pass plans once, and carries nothing out: what it grants is free again in the next one.
func (f *fleet) pass() *plan {
	snap := &snapshot{Pass: nodeplan.Pass{Key: types.NamespacedName{Namespace: "drivers", Name: "m"}, Module: f.module, Verdict: f.verdict}}
	snap.nodes = join(snap.Key, f.nodes, nil, nil)
	return f.control.plan(snap)
}

// shared are the nodes that get a carrier, that wait for one, and that were not planned anew.
func shared(p *plan) (granted, waits, rests string) {
	for i := range p.plans {
		pl := &p.plans[i]
		s := pl.Step()
		switch {
		case s.Create != nil:
			granted += pl.Node.Name
		case len(pl.Holds) > 0 && pl.Holds[0].By == nodeplan.Slots:
			waits += pl.Node.Name
		}
		if pl.Rest != nil {
			rests += pl.Node.Name
		}
	}
	return granted, waits, rests
}

// A node that waits for a slot is not planned anew until it has one, or changes. What is decided is
// the same as by a process that looks at all nodes each time.
func TestANodeThatWaitsForASlotRests(t *testing.T) {
	failed := func(f *fleet, node string) {
		f.control.ledger.fail(types.NamespacedName{Namespace: "drivers", Name: "m"},
			nodeplan.Place{Node: node, Image: "registry.example/m:1"}, "", reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused}, time.Time{})
	}
	cases := map[string]struct {
		given                 func(*fleet)
		granted, waits, rests string
	}{
		"nothing changed":   {given: func(*fleet) {}, granted: "a", waits: "bcd", rests: "bcd"},
		"the first is gone": {given: func(f *fleet) { f.nodes = f.nodes[1:] }, granted: "b", waits: "cd", rests: "cd"},
		"the first is not Ready": {given: func(f *fleet) {
			f.nodes[0] = f.nodes[0].DeepCopy()
			f.nodes[0].ResourceVersion = "2"
			f.nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse
		}, granted: "b", waits: "cd", rests: "cd"},
		"one that waits is not Ready": {given: func(f *fleet) {
			f.nodes[2] = f.nodes[2].DeepCopy()
			f.nodes[2].ResourceVersion = "2"
			f.nodes[2].Status.Conditions[0].Status = corev1.ConditionFalse
		}, granted: "a", waits: "bd", rests: "bd"},
		"the first's carrier was refused": {given: func(f *fleet) { failed(f, "a") }, granted: "b", waits: "cd", rests: "cd"},
		"and may be tried again, but last": {given: func(f *fleet) {
			failed(f, "a")
			f.clock.SetTime(noon.Add(firstRest))
		}, granted: "b", waits: "acd", rests: "cd"},
		"the Module asks for another image": {given: func(f *fleet) {
			f.module = f.module.DeepCopy()
			f.module.ResourceVersion = "2"
			f.module.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "registry.example/m:2"
		}, granted: "a", waits: "bcd"},
		"there is a strike": {given: func(f *fleet) { f.verdict.Held = map[string]strikes.Strike{"other": {}} }, granted: "a", waits: "bcd"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// Given: a pass that has but one slot.
			f, anew := waiting("a", "b", "c", "d"), waiting("a", "b", "c", "d")
			f.pass()
			anew.pass()
			tc.given(f)
			tc.given(anew)

			// When
			got := f.pass()
			anew.control.rests.forget(got.Key)
			want := anew.pass()

			// Then
			granted, waits, rests := shared(got)
			if diff := cmp.Diff([]string{tc.granted, tc.waits, tc.rests}, []string{granted, waits, rests}); diff != "" {
				t.Errorf("granted, waiting and resting (-want +got):\n%s", diff)
			}
			granted, waits, rests = shared(want)
			if granted != tc.granted || waits != tc.waits || rests != "" {
				t.Errorf("planned anew: %q granted, %q waiting, %q resting", granted, waits, rests)
			}
			for i := range got.plans {
				a, b := got.plans[i].Step(), want.plans[i].Step()
				if diff := cmp.Diff([]any{b.Create, b.Write}, []any{a.Create, a.Write}); diff != "" {
					t.Errorf("step of node %s (-anew +got):\n%s", got.plans[i].Node.Name, diff)
				}
			}
			if a, b := f.control.again(got), anew.control.again(want); a != b {
				t.Errorf("the next pass is due after %s, want %s", a, b)
			}
		})
	}
}

// What a process before this one reported of a node stays while it waits.
func TestWhatWasReportedStaysWhileANodeWaits(t *testing.T) {
	f := waiting("a", "b")
	key := types.NamespacedName{Namespace: "drivers", Name: "m"}
	f.control.ledger.recall(key, map[string]reasons.Problem{"b": {Reason: v1beta1.ReasonDeliveryRefused}})
	for range 3 {
		f.pass()
	}
	if _, ok := f.control.ledger.problems(key)["b"]; !ok {
		t.Error("the problem of a node that waits is gone")
	}
}
