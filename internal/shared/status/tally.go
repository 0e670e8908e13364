// SPDX-License-Identifier: Apache-2.0

package status

import "github.com/drover-project/drover/internal/shared/reasons"

// NodeState is where a Module is on one node. Each node that it concerns is in exactly one of them.
type NodeState string

const (
	// NodeReady is live as the Module asks for it now.
	NodeReady NodeState = "ready"
	// NodeLoading is on its way.
	NodeLoading NodeState = "loading"
	// NodeWaiting waits for something outside the Module: paused, or the node or its agent is away.
	NodeWaiting NodeState = "waiting"
	// NodeFailed needs somebody's attention.
	NodeFailed NodeState = "failed"
	// NodeUncovered has no image for the node's kernel.
	NodeUncovered NodeState = "uncovered"
	// NodeUnloading has the Module, which should go.
	NodeUnloading NodeState = "unloading"
)

// NodeStates are all of them.
var NodeStates = []NodeState{NodeReady, NodeLoading, NodeWaiting, NodeFailed, NodeUncovered, NodeUnloading}

// Tally counts a Module's nodes.
type Tally struct {
	States map[NodeState]int
	// Failing are nodes by the reason that needs attention, also during an unload.
	Failing          map[string]int
	UncoveredKernels int // kernels without an image
}

// Count gives in numbers what the conditions give in words.
func Count(m *Module) Tally {
	t := Tally{States: map[NodeState]int{}, Failing: map[string]int{}}
	for _, s := range NodeStates {
		t.States[s] = 0
	}
	kernels := map[string]bool{}
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if n.Wanted && n.Unmapped != nil && m.Loads && !m.Deleting {
			kernels[n.Kernel] = true
		}
		state, problem := stateOf(m, n)
		if state == "" {
			continue
		}
		t.States[state]++
		if problem != nil && reasons.Rank(problem.Reason) == 0 {
			t.Failing[problem.Reason]++
		}
	}
	t.UncoveredKernels = len(kernels)
	return t
}

// stateOf is empty for a node that the Module does not concern.
func stateOf(m *Module, n *Node) (NodeState, *reasons.Problem) {
	switch {
	case m.Deleting, !m.Loads, !n.Wanted:
		if !n.Pending {
			return "", nil
		}
		p := unloadProblem(m, n)
		return NodeUnloading, &p
	case n.Unmapped != nil && !n.Ordered:
		return NodeUncovered, n.Unmapped
	case n.Available:
		return NodeReady, nil
	}
	p := m.loadProblem(n)
	switch reasons.Rank(p.Reason) {
	case 0:
		return NodeFailed, &p
	case reasons.RankUnderway:
		return NodeLoading, &p
	}
	return NodeWaiting, &p
}
