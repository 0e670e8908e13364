// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

func TestDriftIsRepairedAtOnceThenEverMoreSlowly(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.clock.Step(time.Minute)
	for range 2 {
		if err := r.host.Rmmod("gadget"); err != nil {
			t.Fatal(err)
		}
		r.pass(o)
	}
	same(t, "calls", []string{"finit_module gadget", "rmmod gadget", "finit_module gadget", "rmmod gadget"}, r.calls())
	same(t, "attempt", "Waiting Drifted", attempt(r.last, "gadget"))
	same(t, "live", "", loadedImage(r.last, "gadget"))
	r.clock.Step(5 * time.Second)
	s := r.pass(o)
	same(t, "attempt", "Waiting Drifted", attempt(s, "gadget"))
	same(t, "live", o.Config.ContainerImage, loadedImage(s, "gadget"))
}

// TestRepeatedRepairsAreTold: a repair is over in no time. What users must hear of is told by a
// count and a time, and by a reason that stands while it goes on.
func TestRepeatedRepairsAreTold(t *testing.T) {
	const told, untold = "Waiting Drifted", ""
	remove := func(r *rig) {
		if err := r.host.Rmmod("gadget"); err != nil {
			r.t.Fatal(err)
		}
	}
	type step struct {
		after time.Duration
		do    func(*rig)
		then  string
		count int32
		// writes of the status in this step.
		writes int
	}
	cases := map[string][]step{
		"one repair is not told": {
			{time.Minute, remove, untold, 1, 1},
			{time.Hour, nil, untold, 1, 0},
		},
		"two are, until it has stayed": {
			{time.Minute, remove, untold, 1, 1},
			{time.Minute, remove, told, 2, 1},
			{9 * time.Minute, nil, told, 2, 0},
			{time.Minute, nil, untold, 2, 1},
		},
		"each further one has it told again": {
			{time.Minute, remove, untold, 1, 1},
			{time.Minute, remove, told, 2, 1},
			{time.Hour, remove, told, 3, 1},
			{time.Minute, remove, told, 4, 1},
			{time.Hour, nil, untold, 4, 1},
		},
		"another agent goes on counting": {
			{time.Minute, remove, untold, 1, 1},
			{time.Minute, func(r *rig) { remove(r); r.restart(r.host) }, told, 2, 1},
			{time.Second, func(r *rig) { r.restart(r.host) }, told, 2, 0},
		},
		"one that has lost its journal, too": {
			{time.Minute, remove, untold, 1, 1},
			{time.Minute, remove, told, 2, 1},
			{time.Second, func(r *rig) { r.loseJournal() }, told, 2, 0},
		},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			o := order("gadget", r.deliver("d1", gadget))
			r.pass(o)
			for _, step := range steps {
				r.clock.Step(step.after)
				before := r.writes
				if step.do != nil {
					step.do(r)
				}
				s := r.pass(o)
				same(t, "attempt", step.then, attempt(s, "gadget"))
				same(t, "writes", step.writes, r.writes-before)
				seen := s.Modules[0].Observed
				same(t, "repairs", step.count, seen.Repairs)
				if step.do != nil && step.writes > 0 {
					same(t, "last repair", r.clock.Now().UTC(), seen.LastRepair.UTC())
				}
			}
			r.pass(order("gadget", r.deliver("d2", gadget), params("size=2")))
			r.clock.Step(time.Minute)
			s := r.pass(order("gadget", r.deliver("d2", gadget), params("size=2")))
			same(t, "repairs of what is loaded for another order", int32(0), s.Modules[0].Observed.Repairs)
			same(t, "attempt", untold, attempt(s, "gadget"))
		})
	}
}
