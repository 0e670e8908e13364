// SPDX-License-Identifier: Apache-2.0

package module

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// asker is a Module that has carriers made on nodes, one after another.
type asker struct {
	key     types.NamespacedName
	wants   []string
	working []string
	quiet   []time.Time
}

// ask is one pass: what is granted is at work from then on.
func (a *asker) ask(l *ledger) int {
	granted := l.reserve(a.key, a.working, a.quiet, a.wants)
	var left []string
	for _, node := range a.wants {
		if granted[node] {
			a.working = append(a.working, node)
		} else {
			left = append(left, node)
		}
	}
	a.wants = left
	return len(granted)
}

// end is the end of the first carrier.
func (a *asker) end() { a.working = a.working[1:] }

func module(name string, wants ...string) *asker {
	return &asker{key: types.NamespacedName{Namespace: "team", Name: name}, wants: wants}
}

// TestAModuleThatNeedsOneSlotGetsTheNext, although another one holds all and wants thousands.
func TestAModuleThatNeedsOneSlotGetsTheNext(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(noon)
	l := newLedger(fixed(100), now)
	big, small := module("big", nodes(5000)...), module("small", "one")
	if got := big.ask(l); got != 100 {
		t.Fatalf("%d slots of 100 for the only one that asks", got)
	}
	if got := small.ask(l); got != 0 {
		t.Fatalf("%d slots where none is free", got)
	}
	asked := 0
	for ; len(small.working) == 0 && asked < 490; asked++ {
		now.SetTime(now.Now().Add(slotDelay))
		big.end()
		big.ask(l)
		small.ask(l)
	}
	if asked != 1 {
		t.Errorf("asked %d times until a slot came free for it, want once", asked)
	}
	if got := big.ask(l); got != 0 {
		t.Errorf("%d slots where none is free", got)
	}
}

func TestShares(t *testing.T) {
	many := func(n int, wants func(i int) []string) []*asker {
		var all []*asker
		for i := range n {
			all = append(all, module(fmt.Sprintf("m%03d", i), wants(i)...))
		}
		return all
	}
	of := func(node string) func(int) []string { return func(int) []string { return []string{node} } }
	cases := map[string]struct {
		slots int
		// given ask in their order; the big one holds all slots first, and gives one back before each
		// round in which all ask.
		given  []*asker
		rounds int
		// then are the slots that each has.
		then []int
	}{
		"equal shares": {slots: 12, given: []*asker{module("a", nodes(50)...), module("b", nodes(50)...), module("c", nodes(50)...)}, rounds: 20,
			then: []int{4, 4, 4}},
		"what one does not want is for the others": {
			slots: 12, given: []*asker{module("a", nodes(50)...), module("b", nodes(2)...), module("c", nodes(50)...)}, rounds: 20,
			then: []int{5, 2, 5}},
		"one alone has all": {slots: 12, given: []*asker{module("a", nodes(50)...)}, rounds: 1, then: []int{12}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := clocktesting.NewFakePassiveClock(noon)
			l := newLedger(fixed(tc.slots), now)
			for range tc.rounds {
				now.SetTime(now.Now().Add(time.Second))
				for _, a := range tc.given {
					a.ask(l)
				}
				if first := tc.given[0]; tc.rounds > 1 && len(first.working) > tc.then[0] {
					first.end()
				}
			}
			var got []int
			for _, a := range tc.given {
				got = append(got, len(a.working))
			}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
		})
	}

	t.Run("a node that comes with many Modules leaves slots for others", func(t *testing.T) {
		l := newLedger(fixed(100), clocktesting.NewFakePassiveClock(noon))
		held := 0
		for _, a := range many(200, of("fresh")) {
			held += a.ask(l)
		}
		if held != slotsPerNode {
			t.Errorf("the node holds %d slots", held)
		}
		// Those that wait for the node keep no slot from others.
		if got := module("other", nodes(200)...).ask(l); got != 100-slotsPerNode {
			t.Errorf("%d slots for other nodes", got)
		}
	})

	t.Run("those that wait longest come first, where Modules are more than slots", func(t *testing.T) {
		now := clocktesting.NewFakePassiveClock(noon)
		l := newLedger(fixed(2), now)
		all := many(5, func(i int) []string { return []string{fmt.Sprintf("n%d", i), fmt.Sprintf("m%d", i)} })
		var order []string
		for range 10 {
			// They ask in the order that would have the same ones served again and again.
			for _, a := range all {
				now.SetTime(now.Now().Add(time.Millisecond))
				if a.ask(l) > 0 {
					order = append(order, a.key.Name)
				}
			}
			for _, a := range all {
				if len(a.working) > 0 {
					a.end()
				}
			}
		}
		if len(order) < 5 {
			t.Fatalf("served: %v", order)
		}
		served := map[string]bool{}
		for _, name := range order[:6] {
			served[name] = true
		}
		if len(served) != 5 {
			t.Errorf("the first to be served: %v", order[:6])
		}
	})
}

// TestWhoAsksNoMoreKeepsNoSlots from others: its passes may fail before they ask.
func TestWhoAsksNoMoreKeepsNoSlots(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(noon)
	l := newLedger(fixed(10), now)
	big, silent := module("big", nodes(50)...), module("silent", nodes(50)...)
	big.ask(l)
	silent.ask(l)
	now.SetTime(now.Now().Add(askedFor + time.Second))
	big.end()
	if got := big.ask(l); got != 1 {
		t.Errorf("%d slots of 1 that nobody else asks for", got)
	}
}
