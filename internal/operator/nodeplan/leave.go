// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"maps"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/words"
)

// maxNamed is how many nodes an event names per reason.
const maxNamed = 10

// leave decides whether a Module that is being deleted no longer waits for a node: the order to
// unload stands, and the node is dead or the Module has waited long enough. The order is not taken
// back. A node that comes back finds it, and a pass without a Module takes it out.
//
// A paused node is left too, since the end of the pause is an event that brings the order. A pause
// of the Module itself is not: without the Module nobody would know of it.
func (p *Pass) leave(n *Node, d *Delivery, r Drain) Drain {
	m := p.Module
	if m == nil || m.DeletionTimestamp == nil || placement.Paused(m) || n.Node == nil || n.Order == nil || d.Remove {
		return r
	}
	if next(d, &r) != nil || !n.unloads() && !placement.Paused(n.Node) {
		return r
	}
	left := p.patience()
	if at, dies := placement.DeadAt(n.Node); dies {
		left = min(left, at.Sub(p.Now))
	}
	if left > 0 {
		r.Due = left
		return r
	}
	r.Left, r.Uncordon = true, r.Uncordon || drain.Marked(n.Node, p.Key)
	return r
}

// Leftover tells what a Module leaves behind where, and why, as its condition did.
func Leftover(nodes []*Node) string {
	byGround := map[string][]string{}
	for _, n := range nodes {
		g := n.ground()
		byGround[g] = append(byGround[g], n.Name)
	}
	var parts []string
	for _, g := range slices.Sorted(maps.Keys(byGround)) {
		reason, message, _ := strings.Cut(g, ": ")
		part := reason + " on " + words.List(byGround[g], maxNamed)
		if message != "" {
			part += ": " + message
		}
		parts = append(parts, part)
	}
	return "Gone without an answer from " + words.Count(len(nodes), "node") +
		", where the orders to unload stand; " + strings.Join(parts, "; ")
}

// ground is why a node has not been left, as "reason: message".
func (n *Node) ground() string {
	reason, message := v1beta1.ReasonAgentMissing, ""
	switch a := n.Attempt; {
	case a != nil && a.Reason != "" && a.State != v1beta1.AttemptAbsent:
		reason, message = a.Reason, a.Message
	case placement.Paused(n.Node):
		reason = v1beta1.ReasonPaused
	case !placement.Ready(n.Node):
		reason = v1beta1.ReasonNodeNotReady
	}
	message, _, _ = strings.Cut(strings.TrimSpace(message), "\n")
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
