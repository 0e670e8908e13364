// SPDX-License-Identifier: Apache-2.0

package module

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/reasons"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

const running = "6.1.0-37-amd64"

// given is a Module.
func given() *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic", UID: "m", Generation: 1},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"nic": "yes"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Literal: running, ContainerImage: "r/nic:1"}},
			}},
		},
	}
}

// selected is a Ready node that given selects.
func selected(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nic": "yes"}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KernelVersion: running},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func TestSlotsBoundNewCarriers(t *testing.T) {
	key, other := types.NamespacedName{Namespace: "team", Name: "nic"}, types.NamespacedName{Name: "other"}
	failed := map[string]time.Time{"a": noon.Add(-time.Minute), "b": noon.Add(-time.Hour)}
	l := newLedger(fixed(4), clocktesting.NewFakePassiveClock(noon))
	if got := l.reserve(other, nodes(1), nil, nil); len(got) != 0 {
		t.Fatalf("granted %d to who asks for none", len(got))
	}
	c := &Controller{ledger: l, options: Options{Metrics: metrics.NewBoard()}}
	snap := &snapshot{Pass: nodeplan.Pass{Key: key, Module: given(), Wants: desired.New(given()).With(desired.Images{}), Now: noon}}
	snap.Memory.Failures = map[nodeplan.Place]nodeplan.Failure{}
	for _, name := range []string{"a", "b", "c", "d"} {
		snap.nodes = append(snap.nodes, nodeplan.Node{Name: name, Node: selected(name)})
		snap.Memory.Failures[nodeplan.Place{Node: name, Image: "r/nic:1"}] = nodeplan.Failure{At: failed[name]}
	}
	var aims []nodeplan.Aim
	for i := range snap.nodes {
		aims = append(aims, snap.Aim(&snap.nodes[i]))
	}
	p := &plan{snapshot: snap, plans: snap.Make(snap.nodes, aims, nil)}
	c.admit(p)
	var served []string
	queued := 0
	for i := range p.plans {
		if s := p.plans[i].Step(); !s.Idle() {
			served = append(served, s.Node.Name)
		}
		for _, h := range p.plans[i].Holds {
			if h.By == nodeplan.Slots {
				queued++
			}
		}
	}
	if diff := cmp.Diff([]string{"b", "c", "d"}, served); diff != "" || queued != 1 {
		t.Errorf("queued %d; who never failed comes first, then whose failure is oldest (-want +got):\n%s", queued, diff)
	}
	if got := l.reserve(other, nodes(1), nil, nodes(1)); len(got) != 0 {
		t.Errorf("granted %d of no free slots", len(got))
	}
	if got := l.reserve(key, nodes(1), nil, nil); len(got) != 0 {
		t.Errorf("granted %d to who asks for none", len(got))
	}
	if got := l.reserve(other, nodes(1), nil, nodes(5)); len(got) != 2 {
		t.Errorf("granted %d of 2 free slots", len(got))
	}
}

// nodes are names of so many nodes.
func nodes(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("node-%04d", i)
	}
	return all
}

func TestSlotsAreGivenOutOnce(t *testing.T) {
	l := newLedger(fixed(100), clocktesting.NewFakePassiveClock(noon))
	var granted atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			granted.Add(int64(len(l.reserve(types.NamespacedName{Name: fmt.Sprint(i)}, nil, nil, nodes(30)))))
		})
	}
	all.Wait()
	if got := granted.Load(); got != 100 {
		t.Errorf("%d slots given out, want 100", got)
	}
}

func TestFailuresRestLongerEachTime(t *testing.T) {
	asked := noon.Add(-24 * time.Hour)
	now := clocktesting.NewFakePassiveClock(noon)
	l := newLedger(fixed(1), now)
	key, at := types.NamespacedName{Namespace: "team", Name: "nic"}, nodeplan.Place{Node: "n", Image: "r/nic:1"}
	rests := func(at nodeplan.Place, retry time.Time) bool {
		return l.memory(key).Failures[at].Rests(now.Now(), retry)
	}
	problem := reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "no"}
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second,
		5 * time.Minute, 5 * time.Minute} {
		l.fail(key, at, "", problem, asked)
		if got := l.nextRetry(key); got != want {
			t.Errorf("rests %s, want %s", got, want)
		}
		if got := l.memory(key).Failures[at].At; !got.Equal(now.Now()) {
			t.Errorf("failed at %s, want now", got)
		}
		now.SetTime(now.Now().Add(want - time.Millisecond))
		if !rests(at, asked) || !rests(at, time.Time{}) {
			t.Error("tried too early")
		}
		if rests(at, asked.Add(time.Second)) {
			t.Error("somebody asked again, by a clock that is a day behind, and it rests")
		}
		now.SetTime(now.Now().Add(time.Millisecond))
		if rests(at, asked) {
			t.Error("rests too long")
		}
	}
	if rests(nodeplan.Place{Node: "n", Image: "r/nic:2"}, asked) || rests(nodeplan.Place{Node: "m", Image: "r/nic:1"}, asked) {
		t.Error("another image or another node does not rest")
	}
	if got := l.problems(key)["n"]; got != problem {
		t.Errorf("problem %+v is shown until the delivery is made", got)
	}
	l.retain(key, map[string]string{"n": "r/nic:2"})
	if len(l.problems(key)) != 0 {
		t.Error("with another image the old failure is history")
	}
}

func TestTheLedgerForgets(t *testing.T) {
	l := newLedger(fixed(1), clocktesting.NewFakePassiveClock(noon))
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	l.create(key, "m", "a")
	l.create(key, "n", "b")
	l.look(key, []nodeplan.Node{{Carriers: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "b"}}}}})
	created := func(uid types.UID) bool { return l.memory(key).Carriers[uid].Created }
	if created("a") || !created("b") {
		t.Error("what no longer stands is forgotten, the rest is not")
	}
	l.forget(key)
	if created("b") {
		t.Error("a Module that left is forgotten")
	}

	// A pass of a Module that is gone asks all that any pass asks.
	l.memory(key)
	l.retain(key, nil)
	l.nextRetry(key)
	l.problems(key)
	if granted := l.reserve(key, nil, nil, nil); len(granted) != 0 || len(l.modules) != 0 {
		t.Errorf("%d slots granted, %d accounts: looking at a Module that is gone makes it one again", len(granted), len(l.modules))
	}
}

func TestWhenAPassComesAgain(t *testing.T) {
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	c := &Controller{ledger: newLedger(fixed(1), clocktesting.NewFakePassiveClock(noon))}
	cases := map[string]struct {
		given nodeplan.Plan
		then  time.Duration
	}{
		"nothing is open":           {nodeplan.Plan{}, 0},
		"a carrier may be left":     {nodeplan.Plan{Delivery: nodeplan.Delivery{Works: true, Due: nodeplan.CollectTime}}, nodeplan.CollectTime},
		"somebody waits for a slot": {nodeplan.Plan{Holds: []nodeplan.Hold{{By: nodeplan.Slots}}}, slotDelay},
	}
	for name, tc := range cases {
		p := &plan{snapshot: &snapshot{Pass: nodeplan.Pass{Key: key}}, plans: []nodeplan.Plan{tc.given}}
		if got := c.again(p); got != tc.then {
			t.Errorf("%s: %s, want %s", name, got, tc.then)
		}
	}
}
