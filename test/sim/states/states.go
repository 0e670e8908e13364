// SPDX-License-Identifier: Apache-2.0

// Package states counts what a node can be in for a Module: a small product of plain enumerations.
package states

import (
	"slices"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// State is one of [Count]: a number made of all answers.
type State int

// Live is what a node has live under a Module's name.
type Live int

// What is live.
const (
	Nothing    Live = iota
	Asked           // what the Module asks for
	Another         // an image that the Module does not name
	ByHand          // what a person loaded
	livesCount = iota
)

// Order is what a node is told.
type Order int

// What is ordered.
const (
	NoOrder     Order = iota
	Current           // what the Module asks for
	Outdated          // an image that the Module does not name
	Unload            // that nothing is live
	ordersCount = iota
)

// Node is how reachable a node is.
type Node int

// How reachable a node is.
const (
	NoNode Node = iota
	NotReady
	Ready
	nodesCount = iota
)

// attempts are what an agent can say of an order that is not carried out; empty: nothing.
var attempts = []v1beta1.AttemptState{"", v1beta1.AttemptWaiting, v1beta1.AttemptFailed, v1beta1.AttemptInUse, v1beta1.AttemptAbsent,
	v1beta1.AttemptUnclaimed}

// Count is how many states there are, those that cannot be among them.
var Count = int(Situation{ByHand, Unload, true, true, true, Ready, attempts[len(attempts)-1]}.State()) + 1

// Situation is a node and a Module, as they are.
type Situation struct {
	Live  Live
	Order Order
	// Selected: the Module is to be loaded there. Paused: it is paused, or its rollout. OnReboot: what
	// is live stays until a boot.
	Selected, Paused, OnReboot bool
	Node                       Node
	// Attempt is what the agent says of the order; empty: nothing.
	Attempt v1beta1.AttemptState
}

// State is the situation's number.
func (s Situation) State() State {
	state := 0
	for _, answer := range []struct{ is, of int }{
		{int(s.Live), livesCount}, {int(s.Order), ordersCount}, {yes(s.Selected), 2}, {yes(s.Paused), 2}, {yes(s.OnReboot), 2},
		{int(s.Node), nodesCount}, {slices.Index(attempts, s.Attempt), len(attempts)},
	} {
		state = state*answer.of + answer.is
	}
	return State(state)
}

func yes(is bool) int {
	if is {
		return 1
	}
	return 0
}
