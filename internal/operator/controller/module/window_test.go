// SPDX-License-Identifier: Apache-2.0

package module

import (
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/internal/operator/nodeplan"
)

// fixed is a window of n slots, whatever the API server answers.
func fixed(n int) window { return window{most: n, least: n, size: n} }

func TestWindow(t *testing.T) {
	const soon, tooLate = 20 * time.Millisecond, 400 * time.Millisecond
	type answers struct {
		n    int
		took time.Duration
		each time.Duration // from one answer to the next
	}
	cases := map[string]struct {
		most  int
		given []answers
		then  int
	}{
		"a new one is narrow":                      {most: 100, then: 25},
		"the flag asks for less":                   {most: 4, then: 4},
		"answers come soon":                        {most: 100, given: []answers{{n: 30, took: soon}}, then: 55},
		"and never open it for more than the flag": {most: 100, given: []answers{{n: 900, took: soon}}, then: 100},
		"one answer comes late":                    {most: 100, given: []answers{{n: 900, took: soon}, {n: 1, took: tooLate}}, then: 75},
		"a crowd's answers come late together": {
			most: 100, given: []answers{{n: 900, took: soon}, {n: 90, took: tooLate, each: 10 * time.Millisecond}}, then: 75,
		},
		"answers stay late": {most: 100, given: []answers{{n: 900, took: soon}, {n: 90, took: tooLate, each: time.Second}}, then: 25},
		"late ones never close it below what the flag asks for": {most: 4, given: []answers{{n: 90, took: tooLate, each: time.Second}}, then: 4},
		"the API server has time again": {
			most: 100, given: []answers{{n: 90, took: tooLate, each: time.Second}, {n: 75, took: soon, each: time.Second}}, then: 100,
		},
		"the clock is set back": {
			most: 100, given: []answers{{n: 900, took: soon}, {n: 1, took: tooLate}, {n: 1, took: tooLate, each: -time.Hour}}, then: 56,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, now := newWindow(tc.most), noon
			for _, a := range tc.given {
				for range a.n {
					now = now.Add(a.each)
					w.answered(a.took, now)
				}
			}
			if w.size != tc.then {
				t.Errorf("%d slots, want %d", w.size, tc.then)
			}
		})
	}
}

// TestAWindowThatNarrowsTakesNoSlotBack: those that work go on, others wait until there is room.
func TestAWindowThatNarrowsTakesNoSlotBack(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(noon)
	l := newLedger(window{most: 8, least: 2, size: 8}, now)
	nic := module("nic", nodes(20)...)
	if got := nic.ask(l); got != 8 {
		t.Fatalf("%d slots, want 8", got)
	}
	l.answered(time.Second)
	var got []int
	for range 4 {
		nic.end()
		got = append(got, nic.ask(l))
	}
	if want := []int{0, 0, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("granted %v as deliveries end, want %v", got, want)
	}
}

// TestQuietDeliveriesLeaveRoom in the window, up to the flag, and are shared as fairly.
func TestQuietDeliveriesLeaveRoom(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(noon)
	l := newLedger(window{most: 8, least: 2, size: 2}, now)
	nic, gpu := module("nic", nodes(20)...), module("gpu", nodes(1)...)
	var got []int
	for _, quiet := range []int{0, 0, 1, 3, 5, 7, 8} {
		nic.quiet = slices.Repeat([]time.Time{noon}, quiet)
		got = append(got, nic.ask(l))
	}
	// The first two keep the API server busy; then they only pull, one after another.
	if want := []int{2, 0, 1, 2, 2, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("granted %v as deliveries become quiet, want %v", got, want)
	}
	if n, limit := l.deliveries(); n != 8 || limit != 2 {
		t.Errorf("%d deliveries are under way, of which %d may be busy", n, limit)
	}
	if got := gpu.ask(l); got != 0 {
		t.Errorf("%d slots where none is free", got)
	}
	nic.end()
	nic.quiet = nic.quiet[1:]
	if got := []int{nic.ask(l), gpu.ask(l)}; !slices.Equal(got, []int{0, 1}) {
		t.Errorf("granted %v to the one that has nearly all and to the one that waits, want [0 1]", got)
	}
}

// TestADeliveryBecomesQuietByTime, also where its Module has no further pass: another one's slots
// must not wait for that.
func TestADeliveryBecomesQuietByTime(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(noon)
	l := newLedger(window{most: 8, least: 2, size: 2}, now)
	nic, gpu := module("nic", nodes(2)...), module("gpu", nodes(1)...)
	if got := []int{nic.ask(l), gpu.ask(l)}; !slices.Equal(got, []int{2, 0}) {
		t.Fatalf("granted %v, want [2 0]", got)
	}
	now.SetTime(noon.Add(nodeplan.QuietTime))
	if got := gpu.ask(l); got != 1 {
		t.Errorf("%d slots once the others' deliveries only pull, want 1", got)
	}
}
