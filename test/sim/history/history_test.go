// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var verbs = []Verb{{"Goes", 10, true}, {"Breaks", 1, false}, {"Mends", 1, false}}

func TestGenerate(t *testing.T) {
	if diff := cmp.Diff(Generate(7, 60, verbs), Generate(7, 60, verbs)); diff != "" {
		t.Errorf("a seed gives two histories:\n%s", diff)
	}
	if cmp.Equal(Generate(7, 60, verbs), Generate(8, 60, verbs)) {
		t.Error("two seeds give one history")
	}
	mixes := map[string]bool{}
	for seed := range uint64(50) {
		seen := map[string]bool{}
		for _, e := range Generate(seed, 60, verbs) {
			seen[e.Verb] = true
		}
		if !seen["Goes"] {
			t.Errorf("seed %d: nothing goes on", seed)
		}
		for _, v := range []string{"Breaks", "Mends"} {
			if seen[v] {
				mixes[v] = true
			} else {
				mixes["no "+v] = true
			}
		}
	}
	if len(mixes) != 4 {
		t.Errorf("histories have no mix of their own: %v", mixes)
	}
}

// TestShrink: what fails is the event Breaks with an odd number, somewhere after Mends.
func TestShrink(t *testing.T) {
	fails := func(events []Event) bool {
		mends := slices.IndexFunc(events, func(e Event) bool { return e.Verb == "Mends" })
		return mends >= 0 && slices.ContainsFunc(events[mends:], func(e Event) bool { return e.Verb == "Breaks" && e.A%2 == 1 })
	}
	seed := uint64(1)
	for !fails(Generate(seed, 60, verbs)) {
		seed++
	}
	want := []Event{{"Mends", 0, 0}, {"Breaks", 1, 0}}
	if diff := cmp.Diff(want, Shrink(Generate(seed, 60, verbs), fails, 1000)); diff != "" {
		t.Error(diff)
	}
	few := 0
	Shrink(Generate(seed, 60, verbs), func([]Event) bool { few++; return false }, 5)
	if few != 5 {
		t.Errorf("%d tries, and 5 were allowed", few)
	}
}

func TestLiteral(t *testing.T) {
	if got := Literal([]Event{{"Goes", 1, 2}}); got != `[]history.Event{{"Goes", 1, 2}}` {
		t.Error(got)
	}
}
