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
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/desired"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/rollout"
)

func TestSlotsBoundNewCarriers(t *testing.T) {
	key, other := types.NamespacedName{Namespace: "team", Name: "nic"}, types.NamespacedName{Name: "other"}
	failed := map[string]time.Time{"a": noon.Add(-time.Minute), "b": noon.Add(-time.Hour)}
	l := newLedger(4, clocktesting.NewFakePassiveClock(noon))
	if got := l.reserve(other, nodes(1), nil); len(got) != 0 {
		t.Fatalf("granted %d to who asks for none", len(got))
	}
	pl := &planner{
		snap: &snapshot{key: key, module: given()}, options: &Options{DeliveryMode: delivery.ModeImageVolume}, desired: desired.New(given()).With(desired.Images{}),
		trusted: func(types.UID) bool { return false }, resting: func(string, string, time.Time) bool { return false },
		failed: func(node, _ string) time.Time { return failed[node] }, now: noon, seen: &rollout.Sightings{},
		waited: func(types.UID) time.Duration { return 0 }, drained: func(string) wait { return wait{} },
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		v := emptyView()
		v.name, v.node.Name, v.config = name, name, nil
		pl.snap.nodes = append(pl.snap.nodes, v)
	}
	steps, working := pl.decideAll()
	asking := pl.asking(steps)
	p := pl.admit(steps, asking, l.reserve(key, working, names(asking)))
	var served []string
	for i := range p.steps {
		served = append(served, p.steps[i].view.name)
	}
	if diff := cmp.Diff([]string{"b", "c", "d"}, served); diff != "" || p.queued != 1 {
		t.Errorf("queued %d; who never failed comes first, then whose failure is oldest (-want +got):\n%s", p.queued, diff)
	}
	if got := l.reserve(other, nodes(1), nodes(1)); len(got) != 0 {
		t.Errorf("granted %d of no free slots", len(got))
	}
	if got := l.reserve(key, nodes(1), nil); len(got) != 0 {
		t.Errorf("granted %d to who asks for none", len(got))
	}
	if got := l.reserve(other, nodes(1), nodes(5)); len(got) != 2 {
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
	l := newLedger(100, clocktesting.NewFakePassiveClock(noon))
	var granted atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() { granted.Add(int64(len(l.reserve(types.NamespacedName{Name: fmt.Sprint(i)}, nil, nodes(30))))) })
	}
	all.Wait()
	if got := granted.Load(); got != 100 {
		t.Errorf("%d slots given out, want 100", got)
	}
}

func TestFailuresRestLongerEachTime(t *testing.T) {
	asked := noon.Add(-24 * time.Hour)
	now := clocktesting.NewFakePassiveClock(noon)
	l := newLedger(1, now)
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	problem := reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "no"}
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		l.fail(key, "n", "r/nic:1", problem, asked)
		if got := l.nextRetry(key); got != want {
			t.Errorf("rests %s, want %s", got, want)
		}
		if got := l.failed(key, "n", "r/nic:1"); !got.Equal(now.Now()) {
			t.Errorf("failed at %s, want now", got)
		}
		now.SetTime(now.Now().Add(want - time.Millisecond))
		if !l.resting(key, "n", "r/nic:1", asked) || !l.resting(key, "n", "r/nic:1", time.Time{}) {
			t.Error("tried too early")
		}
		if l.resting(key, "n", "r/nic:1", asked.Add(time.Second)) {
			t.Error("somebody asked again, by a clock that is a day behind, and it rests")
		}
		now.SetTime(now.Now().Add(time.Millisecond))
		if l.resting(key, "n", "r/nic:1", asked) {
			t.Error("rests too long")
		}
	}
	if l.resting(key, "n", "r/nic:2", asked) || l.resting(key, "m", "r/nic:1", asked) {
		t.Error("another image or another node does not rest")
	}
	if got := l.problems(key, nil)["n"]; got != problem {
		t.Errorf("problem %+v is shown until the delivery is made", got)
	}
	l.retain(key, map[string]string{"n": "r/nic:2"})
	if len(l.problems(key, nil)) != 0 {
		t.Error("with another image the old failure is history")
	}
}

func TestTheLedgerForgets(t *testing.T) {
	l := newLedger(1, clocktesting.NewFakePassiveClock(noon))
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	l.create(key, "a")
	l.create(key, "b")
	l.look(key, []view{{carriers: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "b"}}}}})
	if l.created(key, "a") || !l.created(key, "b") {
		t.Error("what no longer stands is forgotten, the rest is not")
	}
	l.forget(key)
	if l.created(key, "b") {
		t.Error("a Module that left is forgotten")
	}

	// A pass of a Module that is gone asks all that any pass asks.
	l.created(key, "b")
	l.waited(key, "b")
	l.resting(key, "n", "r/nic:1", time.Time{})
	l.failed(key, "n", "r/nic:1")
	l.retain(key, nil)
	l.nextRetry(key)
	l.problems(key, nil)
	if granted := l.reserve(key, nil, nil); len(granted) != 0 || len(l.modules) != 0 {
		t.Errorf("%d slots granted, %d accounts: looking at a Module that is gone makes it one again", len(granted), len(l.modules))
	}
}

func TestWhenAPassComesAgain(t *testing.T) {
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	c := &Controller{ledger: newLedger(1, clocktesting.NewFakePassiveClock(noon))}
	cases := map[string]struct {
		given plan
		then  time.Duration
	}{
		"nothing is open":           {plan{}, 0},
		"a carrier may be left":     {plan{working: 1, patience: collectTime}, collectTime},
		"somebody waits for a slot": {plan{working: 1, queued: 1}, slotDelay},
	}
	for name, tc := range cases {
		if got := c.again(key, &tc.given); got != tc.then {
			t.Errorf("%s: %s, want %s", name, got, tc.then)
		}
	}
}
