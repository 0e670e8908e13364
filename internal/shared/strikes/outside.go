// SPDX-License-Identifier: Apache-2.0

package strikes

import (
	"slices"
	"time"
)

const (
	// Window is how close together the strikes of an outside cause are.
	Window = 10 * time.Minute
	// MoreThan so many nodes within Window have an outside cause.
	MoreThan = 3
)

// Mark is one strike without evidence: no kernel's dump names a module.
type Mark struct {
	Node string
	At   time.Time // shortly before the node went down: when the load in question began
}

// Outside returns the strikes that have an outside cause, in order of time: those within some
// Window with strikes of more than MoreThan nodes. What has been excused once stays excused.
func Outside(strikes []Mark) []Mark {
	sorted := slices.SortedFunc(slices.Values(strikes), func(a, b Mark) int { return a.At.Compare(b.At) })
	var found []Mark
	nodes := map[string]int{} // strikes by node within [first, last]
	first, taken := 0, 0
	for last, s := range sorted {
		nodes[s.Node]++
		for ; s.At.Sub(sorted[first].At) > Window; first++ {
			gone := sorted[first].Node
			if nodes[gone]--; nodes[gone] == 0 {
				delete(nodes, gone)
			}
		}
		if len(nodes) > MoreThan {
			found = append(found, sorted[max(first, taken):last+1]...)
			taken = last + 1
		}
	}
	return found
}
