// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Stage is how far a node is.
type Stage int

const (
	// Fresh nodes lose nothing by an order.
	Fresh Stage = iota
	// Behind nodes have an earlier order, or what was loaded by one.
	Behind
	// AtBoot nodes, too. What is live stays until their next boot: their change needs no place.
	AtBoot
	// Given nodes have the order that is rolled out.
	Given
	// Leaving nodes are to lose the kernel module and have no order to unload yet.
	Leaving
	// Going nodes have it.
	Going
	// Out nodes have nothing of the Module, and only a taint that asks for an unload keeps it out.
	Out
)

// Node is one node's part of a rollout.
type Node struct {
	Name  string
	Stage Stage
	// Ready nodes can be reached.
	Ready bool
	// Serving: the kernel module is live in this boot, whatever build.
	Serving bool
	// Stuck: nothing is live, and nothing will be under the node's order. It has nothing to lose.
	Stuck bool
	// First: nothing is ordered yet, beside which the image could be brought ahead, and what the order
	// takes out serves.
	First bool
	// Changing: an earlier order, not what the Module asks for now, is still to be carried out.
	// What is live may go for it at any moment: the node is unavailable already, and needs no place. A
	// fresh one is so until its new order is written.
	Changing bool
	// Lost: a fresh node that has an earlier order, for another kernel than it has booted, and nothing
	// live.
	Lost bool
	// Reverted: a fresh node that has what the Module asks for, and an order that would yet take it
	// out.
	Reverted bool
	// Since is when the change became live, by the node's clock until [Sightings] date it; or zero.
	Since time.Time
	// Load tells the load that made it live from others.
	Load Load
	// Build distinguishes what nodes get, for example by their kernels.
	Build string
	// Rests until the next boot: the order waits for it, and what is live stays.
	Rests bool
	// Failed is the reason why the order failed; empty: it did not.
	Failed string
	// Held: the image is on the node.
	Held bool
	// Begun: the node is being made ready for its turn, and keeps it.
	Begun bool
	// Passed is when the node missed its turn, to come last; zero: it did not.
	Passed time.Time
	// Late: the image does not come. Others have precedence.
	Late bool
	// Paused: no order reaches the node.
	Paused bool
	// Later: a leaving node that may yet be selected again.
	Later bool
	// Tainted: a taint of the node asks for the unload. Who put it on waits for that.
	Tainted bool
	// Pool is the node's pool, for [Policy.Pools].
	Pool string
	// Visited: another Module's change is under way on the node. Its change needs no place in the
	// pool, and comes first. Opened: the last plan had this one's there.
	Visited, Opened bool
}

// Load is one load on one node, by boot and the node's second. It is only compared for equality.
type Load struct {
	Boot string
	At   int64
}
