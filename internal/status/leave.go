// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/words"
)

// Silence is how long an order to unload may go without an answer until the node's agent counts as missing. An agent
// that runs answers within seconds, be it that the module is in use.
const Silence = 2 * time.Minute

// unloading tells what a Module that leaves, or that loads nothing any more, waits for. pending are the nodes that its
// finalizer waits for, wherever anything is live.
func unloading(m *Module, pending []Node) metav1.Condition {
	const kind = v1beta1.ConditionLoaded
	what := "The Module is being deleted"
	if !m.Deleting {
		what = "The Module has no moduleLoader any more"
	}
	if len(pending) == 0 {
		return no(kind, v1beta1.ReasonUnloading, what+" and is on no node")
	}
	groups := group(pending, func(n *Node) reasons.Problem { return unloadProblem(m, n) })
	limit := ""
	if m.Deleting && !m.Paused && m.Patience > 0 {
		limit = ", for at most " + duration.HumanDuration(m.Patience)
	}
	return no(kind, groups[0].reason,
		fmt.Sprintf("%s and is still to be taken from %s%s; %s", what, words.Count(len(pending), "node"), limit, describe(groups)))
}

// unloadProblem is why the kernel module, or the order for it, has not gone from a node yet.
func unloadProblem(m *Module, n *Node) reasons.Problem {
	switch {
	case n.Attempt != nil && troubled(n.Attempt):
		return reasons.Problem{Reason: n.Attempt.Reason, Message: n.Attempt.Message}
	case m.Paused || n.Paused:
		return reasons.Problem{Reason: v1beta1.ReasonPaused}
	case n.Delivery != nil && n.Delivery.Reason == v1beta1.ReasonInUse:
		return *n.Delivery // what keeps an order from the node, not an image
	case !n.Ready:
		return reasons.Problem{Reason: v1beta1.ReasonNodeNotReady}
	case n.Silent:
		return reasons.Problem{
			Reason:  v1beta1.ReasonAgentMissing,
			Message: fmt.Sprintf("the order to unload has had no answer for more than %d minutes", int(Silence.Minutes())),
		}
	default:
		return reasons.Problem{Reason: v1beta1.ReasonUnloading}
	}
}
