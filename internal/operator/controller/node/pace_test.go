// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestPace(t *testing.T) {
	module, other := types.NamespacedName{Namespace: "team", Name: "nic"}, types.NamespacedName{Namespace: "team", Name: "gpu"}
	then := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		nodes int32
		after time.Duration // since the last status
		want  time.Duration
	}{
		"few nodes":                       {nodes: 200, want: time.Second},
		"2,000 nodes, in a burst":         {nodes: 2000, want: 4 * time.Second},
		"2,000 nodes, later in a burst":   {nodes: 2000, after: 1500 * time.Millisecond, want: 2500 * time.Millisecond},
		"2,000 nodes, after a quiet time": {nodes: 2000, after: time.Minute, want: time.Second},
		"20,000 nodes":                    {nodes: 20000, want: 10 * time.Second},
		"a clock that was set back":       {nodes: 5000, after: -time.Hour, want: 10 * time.Second},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var p pace
			p.passed(module, test.nodes, then)
			if got := p.wait(module, then.Add(test.after)); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
			if got := p.wait(other, then); got != settle {
				t.Errorf("another Module waits %s", got)
			}
			p.forget(module)
			if got := p.wait(module, then); got != settle {
				t.Errorf("forgotten, it waits %s", got)
			}
		})
	}
}

// A load of 5,000 nodes, with a change each 50 ms, costs as many statuses as one of 500, and a few.
func TestPaceBoundsStatuses(t *testing.T) {
	module := types.NamespacedName{Namespace: "team", Name: "nic"}
	statuses := func(nodes int32, load time.Duration) int {
		var p pace
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		n, due := 0, time.Time{}
		for now := begin; now.Before(begin.Add(load)); now = now.Add(50 * time.Millisecond) {
			if !due.IsZero() && !now.Before(due) {
				n, due = n+1, time.Time{}
				p.passed(module, nodes, now)
			}
			if at := now.Add(p.wait(module, now)); due.IsZero() || at.Before(due) {
				due = at
			}
		}
		return n
	}
	if small, large := statuses(500, 23*time.Second), statuses(5000, 361*time.Second); small < 20 || large > small+15 {
		t.Errorf("%d statuses for 500 nodes, %d for 5,000", small, large)
	}
}
