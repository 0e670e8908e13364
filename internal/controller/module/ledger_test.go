// SPDX-License-Identifier: Apache-2.0

package module

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
)

func TestSlotsBoundNewCarriers(t *testing.T) {
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	l := newLedger(3, clocktesting.NewFakePassiveClock(noon))
	if free := l.hold(types.NamespacedName{Name: "other"}, 1); free != 2 {
		t.Fatalf("%d slots free, want 2", free)
	}
	pl := &planner{
		snap: &snapshot{key: key, module: given()}, options: &Options{DeliveryMode: delivery.ModeImageVolume}, orders: newMappings().of(given()),
		trusted: func(types.UID) bool { return false }, resting: func(string, string) bool { return false },
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		v := emptyView()
		v.name, v.node.Name, v.config = name, name, nil
		pl.snap.nodes = append(pl.snap.nodes, v)
	}
	steps, working := pl.decideAll()
	p := pl.admit(steps, l.hold(key, working))
	if p.granted != 2 || p.queued != 2 || len(p.steps) != 2 {
		t.Errorf("granted %d, queued %d, steps %d; want 2, 2, 2", p.granted, p.queued, len(p.steps))
	}
	if p.steps[0].view.name != "a" || p.steps[1].view.name != "b" {
		t.Error("nodes are served in order of their names, so that the same ones wait")
	}
}

func TestFailuresRestLongerEachTime(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(noon)
	l := newLedger(1, now)
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	problem := delivery.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "no"}
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		l.fail(key, "n", "r/nic:1", problem)
		if got := l.nextRetry(key); got != want {
			t.Errorf("rests %s, want %s", got, want)
		}
		now.SetTime(now.Now().Add(want - time.Millisecond))
		if !l.resting(key, "n", "r/nic:1") {
			t.Error("tried too early")
		}
		now.SetTime(now.Now().Add(time.Millisecond))
		if l.resting(key, "n", "r/nic:1") {
			t.Error("rests too long")
		}
	}
	if l.resting(key, "n", "r/nic:2") || l.resting(key, "m", "r/nic:1") {
		t.Error("another image or another node does not rest")
	}
	if got := l.problems(key, nil)["n"]; got != problem {
		t.Errorf("problem %+v is shown until the delivery is made", got)
	}
	l.retain(key, "n", "r/nic:2")
	if len(l.problems(key, nil)) != 0 {
		t.Error("with another image the old failure is history")
	}
}

func TestTheLedgerForgets(t *testing.T) {
	l := newLedger(1, clocktesting.NewFakePassiveClock(noon))
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	l.create(key, "a")
	l.create(key, "b")
	l.keep(key, []view{{carriers: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "b"}}}}})
	if l.created(key, "a") || !l.created(key, "b") {
		t.Error("what no longer stands is forgotten, the rest is not")
	}
	l.forget(key)
	if l.created(key, "b") {
		t.Error("a Module that left is forgotten")
	}
}
