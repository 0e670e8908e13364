// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

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

// unloadProblem is why the kernel module, or the order for it, has not left a node yet.
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
			Message: fmt.Sprintf("the agent has not answered the order to unload for more than %d minutes", int(Silence.Minutes())),
		}
	default:
		return reasons.Problem{Reason: v1beta1.ReasonUnloading}
	}
}
