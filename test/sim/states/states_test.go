// SPDX-License-Identifier: Apache-2.0

package states

import "testing"

// TestState: each situation has a number of its own, from 0 to Count.
func TestState(t *testing.T) {
	seen := map[State]Situation{}
	for live := range Live(livesCount) {
		for order := range Order(ordersCount) {
			for node := range Node(nodesCount) {
				for flags := range 8 {
					for _, attempt := range attempts {
						s := Situation{live, order, flags&1 > 0, flags&2 > 0, flags&4 > 0, node, attempt}
						n := s.State()
						if other, has := seen[n]; has || n < 0 || int(n) >= Count {
							t.Fatalf("%+v has the number %d of %d, as %+v", s, n, Count, other)
						}
						seen[n] = s
					}
				}
			}
		}
	}
	if len(seen) != Count {
		t.Errorf("%d situations, and Count is %d", len(seen), Count)
	}
}
