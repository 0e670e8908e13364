// SPDX-License-Identifier: Apache-2.0

// Package outside tells strikes that several nodes got together, from a cause outside of them such as a power cut,
// from strikes that one build earned. It is pure and imports nothing of the agent: the operator sees all nodes, an
// agent only its own.
package outside

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

// Strike is one strike without evidence. Strikes for which a kernel's dump names a module do not belong here.
type Strike struct {
	// Node that got it.
	Node string
	// At is when the node's agent noted it, on the first occasion after the boot.
	At time.Time
}

// Cause returns the strikes that have an outside cause, in order of time: those that lie in some Window with strikes of
// more than MoreThan different nodes. As it asks for no current time, what has been excused once stays excused.
func Cause(strikes []Strike) []Strike {
	sorted := slices.SortedFunc(slices.Values(strikes), func(a, b Strike) int { return a.At.Compare(b.At) })
	var found []Strike
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
