// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestPace(t *testing.T) {
	module, other := types.NamespacedName{Namespace: "team", Name: "nic"}, types.NamespacedName{Namespace: "team", Name: "gpu"}
	then := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		nodes int
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
			p := Pace{First: time.Second, Most: 10 * time.Second, Each: 2 * time.Millisecond}
			p.Passed(module, test.nodes, then)
			if got := p.Wait(module, then.Add(test.after)); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
			if got := p.Wait(other, then); got != time.Second {
				t.Errorf("another Module waits %s", got)
			}
			p.Forget(module)
			if got := p.Wait(module, then); got != time.Second {
				t.Errorf("forgotten, it waits %s", got)
			}
		})
	}
}

// The pace of the controller that gives orders: little in all, and nothing more for small fleets.
func TestPaceOfOrders(t *testing.T) {
	module := types.NamespacedName{Namespace: "team", Name: "nic"}
	then := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for nodes, want := range map[int]time.Duration{
		500: 200 * time.Millisecond, 2000: 300 * time.Millisecond, 5000: 750 * time.Millisecond, 50000: 750 * time.Millisecond,
	} {
		p := Pace{First: 200 * time.Millisecond, Most: 750 * time.Millisecond, Each: 150 * time.Microsecond}
		p.Passed(module, nodes, then)
		if got := p.Wait(module, then); got != want {
			t.Errorf("%d nodes: waits %s, want %s", nodes, got, want)
		}
		if got := p.Wait(module, then.Add(time.Minute)); got != 200*time.Millisecond {
			t.Errorf("%d nodes, after a quiet time: waits %s", nodes, got)
		}
	}
}

// A load of 5,000 nodes, with a change each 50 ms, costs as many statuses as one of 500, and a few.
func TestPaceBoundsStatuses(t *testing.T) {
	module := types.NamespacedName{Namespace: "team", Name: "nic"}
	statuses := func(nodes int, load time.Duration) int {
		p := Pace{First: time.Second, Most: 10 * time.Second, Each: 2 * time.Millisecond}
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		n, due := 0, time.Time{}
		for now := begin; now.Before(begin.Add(load)); now = now.Add(50 * time.Millisecond) {
			if !due.IsZero() && !now.Before(due) {
				n, due = n+1, time.Time{}
				p.Passed(module, nodes, now)
			}
			if at := now.Add(p.Wait(module, now)); due.IsZero() || at.Before(due) {
				due = at
			}
		}
		return n
	}
	if small, large := statuses(500, 23*time.Second), statuses(5000, 361*time.Second); small < 20 || large > small+15 {
		t.Errorf("%d statuses for 500 nodes, %d for 5,000", small, large)
	}
}
