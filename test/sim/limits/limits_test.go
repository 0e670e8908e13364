// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"testing"
	"time"

	"github.com/drover-project/drover/test/sim/history"
)

func TestEveryFourthSeedHasALimit(t *testing.T) {
	nodes := map[int]int{}
	for seed := range uint64(160) {
		switch events := Begin(seed, []history.Event{{Verb: "Image"}}); {
		case events[len(events)-1].Verb != "Image":
			t.Errorf("seed %d: %v does not go on as it was", seed, events)
		case len(events) == 1:
			nodes[0]++
		case events[0].Verb != Verb:
			t.Errorf("seed %d begins with %v", seed, events[0])
		default:
			nodes[int(events[0].A)+1]++
		}
	}
	if nodes[0] != 120 || nodes[1] != 30 || nodes[2] != 10 {
		t.Errorf("histories by their limit, 0 for none: %v", nodes)
	}
}

func TestWhatIsUnderWay(t *testing.T) {
	noon := time.Date(2001, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		do             func(*Shared)
		under, visited bool
	}{
		"nothing was":                     {func(*Shared) {}, false, false},
		"it has begun":                    {func(s *Shared) { s.Begins("n", "m", noon) }, true, true},
		"on another node":                 {func(s *Shared) { s.Begins("o", "m", noon) }, false, false},
		"it is over, just now":            {func(s *Shared) { s.Begins("n", "m", noon); s.Ends("n", "m", noon.Add(-time.Second)) }, false, true},
		"it is over, for a while":         {func(s *Shared) { s.Begins("n", "m", noon); s.Ends("n", "m", noon.Add(-time.Hour)) }, false, false},
		"it was over before, and is not":  {func(s *Shared) { s.Ends("n", "m", noon); s.Begins("n", "m", noon) }, true, true},
		"it had not begun when it ended":  {func(s *Shared) { s.Ends("n", "m", noon) }, false, false},
		"the operator has begun meantime": {func(s *Shared) { s.Begins("n", "m", noon); s.Restarted(noon) }, false, false},
		"it does not come about":          {func(s *Shared) { s.Begins("n", "m", noon.Add(-10*time.Minute)) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := Shared{Nodes: 1}
			s.Restarted(noon)
			tc.do(&s)
			if under, visited := s.Under("n", "m", false, noon), s.Visited("n", "m", noon); under != tc.under || visited != tc.visited {
				t.Errorf("under way: %t, visited: %t", under, visited)
			}
		})
	}
}
