// SPDX-License-Identifier: Apache-2.0

package world

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// State is what a node is in for a Module: a number made of the answers to [questions].
type State int

// States is how many states there are, those that cannot be among them.
var States = func() int {
	n := 1
	for _, q := range questions {
		n *= q.answers
	}
	return n
}()

// situation is a node and a Module, as they are.
type situation struct {
	trial  *trial
	m      *machine
	module *v1beta1.Module // nil: there is none
	node   *corev1.Node    // nil: there is none
	config *v1beta1.NodeModulesConfig
}

// questions are what tells states apart, and how many answers each has.
var questions = []struct {
	answers int
	ask     func(situation) int
}{
	// What is live: nothing, what the Module says, another image of an order, what a person loaded.
	{4, func(s situation) int {
		switch live := s.trial.live(s.m); {
		case live == "":
			return 0
		case !s.trial.loadedByAgent(s.m):
			return 3
		case live == imageIn(s.module):
			return 1
		}
		return 2
	}},
	// What is ordered: nothing, what the Module says, something else, to unload.
	{4, func(s situation) int {
		switch order := s.trial.orderOf(s.config); {
		case order == nil:
			return 0
		case unloads(order):
			return 3
		case order.Config.ContainerImage == imageIn(s.module):
			return 1
		}
		return 2
	}},
	{2, func(s situation) int { return yes(s.module != nil && selects(s.module, s.node)) }},
	{2, func(s situation) int {
		return yes(paused(s.module) || s.module != nil && s.module.Spec.Rollout != nil && s.module.Spec.Rollout.Paused)
	}},
	{2, func(s situation) int {
		return yes(s.module != nil && s.module.Spec.ModuleLoader != nil &&
			s.module.Spec.ModuleLoader.Container.UnloadPolicy == v1beta1.UnloadOnReboot)
	}},
	// The Node: there is none, it is not Ready, it is.
	{3, func(s situation) int {
		switch {
		case s.node == nil:
			return 0
		case s.m.ready != corev1.ConditionTrue:
			return 1
		}
		return 2
	}},
	// What stands between the order and its fulfilment.
	{len(attemptStates) + 1, func(s situation) int {
		if a := s.trial.attemptOf(s.config); a != nil {
			return slices.Index(attemptStates, a.State) + 1
		}
		return 0
	}},
}

var attemptStates = []v1beta1.AttemptState{v1beta1.AttemptWaiting, v1beta1.AttemptFailed, v1beta1.AttemptInUse, v1beta1.AttemptAbsent,
	v1beta1.AttemptUnclaimed}

// Seen are the states that nodes have been in, and after how many events of the history first; 0:
// at its end.
func (w *World) Seen() map[State]int { return w.seen }

// notice notes the states that nodes are in, after so many events.
func (w *World) notice(events int) {
	for _, t := range w.judge.all() {
		module := last[*v1beta1.Module](&w.judge, kindModule, t.key())
		for _, m := range w.nodes {
			s := situation{t, m, module, last[*corev1.Node](&w.judge, kindNode, m.name),
				last[*v1beta1.NodeModulesConfig](&w.judge, kindOrders, m.name)}
			state := 0
			for _, q := range questions {
				state = state*q.answers + q.ask(s)
			}
			if _, has := w.seen[State(state)]; !has {
				w.seen[State(state)] = events
			}
		}
	}
}

func yes(is bool) int {
	if is {
		return 1
	}
	return 0
}
