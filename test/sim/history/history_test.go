// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var verbs = []Verb{{Name: "Goes", Weight: 10, Machinery: true}, {Name: "Breaks", Weight: 1}, {Name: "Mends", Weight: 1}}

func TestGenerate(t *testing.T) {
	if diff := cmp.Diff(Generate(7, 60, verbs, nil), Generate(7, 60, verbs, nil)); diff != "" {
		t.Errorf("a seed gives two histories:\n%s", diff)
	}
	if cmp.Equal(Generate(7, 60, verbs, nil), Generate(8, 60, verbs, nil)) {
		t.Error("two seeds give one history")
	}
	mixes := map[string]bool{}
	for seed := range uint64(50) {
		seen := map[string]bool{}
		for _, e := range Generate(seed, 60, verbs, nil) {
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

// TestGenerateFromCorpus: some histories begin as one of the corpus, and none is longer than asked
// for.
func TestGenerateFromCorpus(t *testing.T) {
	corpus := [][]Event{{{"Kept", 1, 2}, {"Kept", 3, 4}, {"Kept", 5, 6}, {"Kept", 7, 8}}}
	begun, changed := 0, 0
	for seed := range uint64(100) {
		for _, n := range []int{2, 60} {
			events := Generate(seed, n, verbs, corpus)
			if len(events) != n {
				t.Fatalf("seed %d: %d events, and %d were asked for", seed, len(events), n)
			}
			if events[0].Verb == "Kept" {
				begun++
				if !cmp.Equal(events[:2], corpus[0][:2]) {
					changed++
				}
			}
		}
	}
	if begun < 60 || begun > 140 || changed == 0 || changed > begun/2 {
		t.Errorf("of 200 histories, %d begin as one of the corpus, %d of them with other numbers", begun, changed)
	}
}

// TestGenerateOpens: every other history begins with what opens it, and none that begins as one of
// the corpus does.
func TestGenerateOpens(t *testing.T) {
	opening := append([]Verb{{Name: "Waits", Machinery: true, Opens: true}}, verbs...)
	for _, corpus := range [][][]Event{nil, {{{"Kept", 1, 2}}}} {
		opens, begins := 0, 0
		for seed := range uint64(100) {
			for i, e := range Generate(seed, 60, opening, corpus) {
				switch {
				case e.Verb == "Kept" && i == 0:
					begins++
				case e.Verb == "Waits" && i == 0:
					opens++
				case e.Verb == "Waits":
					t.Fatalf("seed %d: what opens a history is its event %d", seed, i)
				}
			}
		}
		if rest := 100 - begins; opens < rest*3/8 || opens > rest*5/8 {
			t.Errorf("of %d histories, %d are opened", rest, opens)
		}
	}
	if n := len(Generate(1, 0, opening, nil)); n != 0 {
		t.Errorf("no event was asked for, and there are %d", n)
	}
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		text string
		want []Event
		bad  bool
	}{
		{"Goes(1,2) Breaks(255,0)", []Event{{"Goes", 1, 2}, {"Breaks", 255, 0}}, false},
		{"", nil, false},
		{"Goes", nil, true},
		{"Goes(1)", nil, true},
		{"Goes(1,256)", nil, true},
		{"(1,2)", nil, true},
	} {
		got, err := Parse(test.text)
		if (err != nil) != test.bad || !test.bad && !cmp.Equal(got, test.want) {
			t.Errorf("%q: %v, %v", test.text, got, err)
		}
		if !test.bad && Text(got) != test.text {
			t.Errorf("%q is written as %q", test.text, Text(got))
		}
	}
	if _, err := Corpus(); err != nil {
		t.Error(err)
	}
}

// TestShrink: what fails is the event Breaks with an odd number, somewhere after Mends.
func TestShrink(t *testing.T) {
	fails := func(events []Event) bool {
		mends := slices.IndexFunc(events, func(e Event) bool { return e.Verb == "Mends" })
		return mends >= 0 && slices.ContainsFunc(events[mends:], func(e Event) bool { return e.Verb == "Breaks" && e.A%2 == 1 })
	}
	seed := uint64(1)
	for !fails(Generate(seed, 60, verbs, nil)) {
		seed++
	}
	want := []Event{{"Mends", 0, 0}, {"Breaks", 1, 0}}
	if diff := cmp.Diff(want, Shrink(Generate(seed, 60, verbs, nil), fails, 1000)); diff != "" {
		t.Error(diff)
	}
	few := 0
	Shrink(Generate(seed, 60, verbs, nil), func([]Event) bool { few++; return false }, 5)
	if few != 5 {
		t.Errorf("%d tries, and 5 were allowed", few)
	}
}

func TestLiteral(t *testing.T) {
	if got := Literal([]Event{{"Goes", 1, 2}}); got != `[]history.Event{{"Goes", 1, 2}}` {
		t.Error(got)
	}
}
