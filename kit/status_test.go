// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestStatusIsNeverRead: whatever somebody writes into the status, the children stay as they are,
// and the status becomes what it was.
func TestStatusIsNeverRead(t *testing.T) {
	forged := metav1.Condition{Type: "Ready", Status: "False", Reason: "Forged", Message: "not so",
		LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}
	extra := forged
	extra.Type = "Extra"
	cases := map[string]func(*GadgetStatus){
		"wiped":              func(s *GadgetStatus) { *s = GadgetStatus{} },
		"a condition turned": func(s *GadgetStatus) { s.Conditions[0] = forged },
		"a condition more":   func(s *GadgetStatus) { s.Conditions = append(s.Conditions, extra) },
		"data forged":        func(s *GadgetStatus) { s.Size, s.Nodes = "99", 99 },
		"everything is another's": func(s *GadgetStatus) {
			*s = GadgetStatus{Size: "1", Nodes: 7, Conditions: []metav1.Condition{extra, forged}}
		},
	}
	for name, forge := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create("g")
			r.settle("g")
			r.ready("g")
			r.settle("g")
			before, config, module := r.gadget("g"), r.config("g"), r.module("g")
			g := r.gadget("g")
			forge(&g.Status)
			r.must(r.admin.Status().Update(t.Context(), g))
			for _, pass := range r.settle("g") {
				for _, write := range pass {
					if write != patchStatus {
						t.Errorf("wrote %s", write)
					}
				}
			}
			times := cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")
			byType := cmpopts.SortSlices(func(a, b metav1.Condition) bool { return a.Type < b.Type })
			if diff := cmp.Diff(before.Status, r.gadget("g").Status, times, byType); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if r.config("g").ResourceVersion != config.ResourceVersion || r.module("g").ResourceVersion != module.ResourceVersion {
				t.Error("a child was written")
			}
		})
	}
}

// TestEventsTellOfTransitions, one for each, and passes that find the same tell nothing.
func TestEventsTellOfTransitions(t *testing.T) {
	r := newRig(t)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	r.op.Clock = clock
	r.create("g")
	steps := []struct {
		given string
		do    func()
		then  []string
	}{
		{"it is on its way", func() {}, []string{"Normal Progressing Module g is ready on 0 of 0 nodes"}},
		{"nothing happens", func() {}, nil},
		{"other numbers of the same", func() {
			m := r.module("g")
			m.Status.ModuleLoader.DesiredNumber = 2
			r.must(r.admin.Status().Update(t.Context(), m))
		}, nil},
		{"ready", func() { r.ready("g") }, []string{"Normal Reconciled Everything exists and is ready"}},
		{"nothing happens", func() {}, nil},
		{"refused", func() { r.change("g", func(g *Gadget) { g.Spec.Size = "none" }) }, []string{"Warning NoSize A gadget of no size is none: " +
			"choose another"}},
		{"ready again", func() { r.change("g", func(g *Gadget) { g.Spec.Size = "5" }) }, []string{"Normal Reconciled Everything exists " +
			"and is ready"}},
	}
	for _, step := range steps {
		clock.SetTime(clock.Now().Add(time.Minute))
		step.do()
		r.settle("g")
		for range 5 {
			r.pass("g")
		}
		if diff := cmp.Diff(step.then, r.told()); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", step.given, diff)
		}
	}
	// The fourth minute made it ready; refused and back took until the seventh.
	for _, c := range r.gadget("g").Status.Conditions {
		if want := time.Unix(1000, 0).Add(7 * time.Minute); !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s since %s, want %s", c.Type, c.LastTransitionTime, want)
		}
		if c.ObservedGeneration != r.gadget("g").Generation {
			t.Errorf("%s is about generation %d", c.Type, c.ObservedGeneration)
		}
	}
}

// TestLongMessagesFitIntoEvents: the condition has all of it.
func TestLongMessagesFitIntoEvents(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("x", 2000)
	r.op.Desired = func(*Gadget) ([]client.Object, error) { return nil, fmt.Errorf("%s", long) }
	r.create("g")
	_, _ = r.try("g")
	told := r.told()
	if len(told) != 1 || len(told[0]) > 1024+len("Warning ReconcileFailed ") {
		t.Errorf("%d events, the first of %d bytes", len(told), len(told[0]))
	}
	r.wantSays("g", "Ready", long)
}

// TestDataIsNotKept: what cannot be observed any more is not in the status any more.
func TestDataIsNotKept(t *testing.T) {
	r := newRig(t)
	r.create("g")
	r.settle("g")
	r.ready("g")
	r.settle("g")
	if got := r.gadget("g").Status; got.Nodes != 2 || got.Size != "5" {
		t.Fatalf("status %+v", got)
	}
	r.change("g", func(g *Gadget) { g.Spec.Size = "none" })
	r.settle("g")
	if got := r.gadget("g").Status; got.Nodes != 0 || got.Size != "" {
		t.Errorf("status %+v", got)
	}
}
