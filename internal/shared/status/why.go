// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/words"
)

// Why is what stands between the Module and one of its nodes, in the words of the condition Loaded;
// false: nothing does.
func Why(m *Module, n *Node) (reasons.Problem, bool) {
	switch {
	case m.Deleting || !m.Loads:
		if !n.Pending {
			return reasons.Problem{}, false
		}
		return unloadProblem(m, n), true
	case n.Wanted && !n.Available:
		p := m.loadProblem(n)
		if m.Paused && reasons.OnItsWay(p.Reason) {
			p.Reason = v1beta1.ReasonPaused
		}
		return p, true
	case !n.Wanted && n.Pending:
		return unloadProblem(m, n), true
	}
	return reasons.Problem{}, false
}

// Cohorts groups a Module's nodes by what stands in their way, the worst first. Fine nodes have
// what the Module asks for now.
func Cohorts(m *Module) (cohorts []Cohort, fine []string) {
	nodes := slices.SortedFunc(slices.Values(m.Nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	var troubled []Node
	for i := range nodes {
		switch _, open := Why(m, &nodes[i]); {
		case open:
			troubled = append(troubled, nodes[i])
		case nodes[i].Wanted:
			fine = append(fine, nodes[i].Name)
		}
	}
	return group(troubled, func(n *Node) reasons.Problem { p, _ := Why(m, n); return p }), fine
}

// stalled reports whether nothing that is missing will come by itself. One node that is on its way,
// or away, is reason enough to wait. A deleted Module never stalls, nor one that Drover only
// watches.
func stalled(m *Module, ready *metav1.Condition) bool {
	if ready.Status == metav1.ConditionTrue || m.Deleting || m.ReadOnly != nil || m.Paused {
		return false
	}
	missing := false
	for i := range m.Nodes {
		n := &m.Nodes[i]
		p, open := Why(m, n)
		switch {
		case open && !reasons.Final(p.Reason) && !waitsInVain(m, &p) && !abandoned(n, &p):
			return false
		case !open && n.Usable && !n.PluginReady && (m.HasPlugin || m.HasDRA) && m.PluginProblem == nil:
			return false
		}
		missing = missing || open
	}
	return missing || reasons.Final(ready.Reason)
}

// waitsInVain is true for a node that waits for its turn behind one with a final failure.
func waitsInVain(m *Module, p *reasons.Problem) bool {
	return p.Reason == v1beta1.ReasonRollingOut && m.Rollout != nil && m.Rollout.Halt == rollout.HaltFailed
}

// nowhere is the condition of a Module without a node that can have it.
func nowhere(m *Module, kind string) metav1.Condition {
	if out := keptOut(m.Nodes); out != "" {
		return no(kind, v1beta1.ReasonTainted, noNodes+"; "+out)
	}
	if len(m.Unsupported) == 0 {
		return no(kind, v1beta1.ReasonNoNodes, noNodes)
	}
	nodes := slices.SortedFunc(slices.Values(m.Unsupported), func(a, b Unsupported) int { return cmp.Compare(a.Name, b.Name) })
	names := make([]string, 0, len(nodes))
	for _, n := range nodes {
		names = append(names, n.Name+" "+n.Why)
	}
	return no(kind, v1beta1.ReasonUnsupportedNode, fmt.Sprintf("%s: %s", noNodes, words.List(names, maxNames)))
}

// Told are the conditions whose changes become events: Stalled only repeats another one.
func Told(conditions []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == v1beta1.ConditionStalled })
}

// Silence is how long an order to unload may go unanswered before the node's agent counts as
// missing. An agent that runs answers within seconds, even if the module is in use.
const Silence = 2 * time.Minute

// unloading says what a Module that leaves, or no longer loads anything, waits for.
func unloading(m *Module, pending []Node) metav1.Condition {
	const kind = v1beta1.ConditionLoaded
	what := "The Module is being deleted"
	if !m.Deleting {
		what = "The Module no longer has a moduleLoader"
	}
	if len(pending) == 0 {
		return no(kind, v1beta1.ReasonUnloading, what+" and has left every node")
	}
	groups := group(pending, func(n *Node) reasons.Problem { return unloadProblem(m, n) })
	limit := ""
	if m.Deleting && !m.Paused && m.Patience > 0 {
		limit = " within " + duration.HumanDuration(m.Patience)
	}
	return no(kind, groups[0].Reason,
		fmt.Sprintf("%s and must still leave %s%s; %s", what, words.Count(len(pending), "node"), limit, describe(groups)))
}

// ordersOwn are reasons that keep an order from being written or answered, not an image from the
// node.
var ordersOwn = []string{v1beta1.ReasonInUse, v1beta1.ReasonWriteRefused, v1beta1.ReasonAgentMissing}

// unloadProblem is why the kernel module, or the order for it, has not left a node yet.
func unloadProblem(m *Module, n *Node) reasons.Problem {
	switch {
	case n.Attempt != nil && troubled(n.Attempt):
		return reasons.Problem{Reason: n.Attempt.Reason, Message: n.Attempt.Message}
	case m.Paused || n.Paused:
		return reasons.Problem{Reason: v1beta1.ReasonPaused}
	case n.Delivery != nil && slices.Contains(ordersOwn, n.Delivery.Reason):
		return *n.Delivery
	case !n.Ready:
		return reasons.Problem{Reason: v1beta1.ReasonNodeNotReady}
	case n.Silent:
		return reasons.Problem{
			Reason:  v1beta1.ReasonAgentMissing,
			Message: fmt.Sprintf("the agent has not answered the order to unload for more than %d minutes", int(Silence.Minutes())),
		}
	case n.Tainted != "" && !m.Deleting:
		return *tainted(n)
	default:
		return reasons.Problem{Reason: v1beta1.ReasonUnloading}
	}
}

// tainted is why the Module leaves a node, or stays away, for a taint that asks for it.
func tainted(n *Node) *reasons.Problem {
	return &reasons.Problem{Reason: v1beta1.ReasonTainted, Message: "the taint " + n.Tainted + " asks for the unload; tolerate it in " +
		"spec.tolerations, or remove the taint"}
}

// keptOut names the nodes that have no Module because of such a taint, or are to lose it; empty:
// there are none.
func keptOut(nodes []Node) string {
	out := only(nodes, func(n *Node) bool { return n.Tainted != "" })
	return describe(group(out, func(n *Node) reasons.Problem { return *tainted(n) }))
}

// NodeState is where a Module is on one node. Each node that it concerns is in exactly one of them.
type NodeState string

const (
	// NodeReady is live as the Module asks for it now.
	NodeReady NodeState = "ready"
	// NodeLoading is on its way.
	NodeLoading NodeState = "loading"
	// NodeWaiting waits for something outside the Module: paused, or the node or its agent is away.
	NodeWaiting NodeState = "waiting"
	// NodeFailed needs attention.
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
