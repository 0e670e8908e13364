// SPDX-License-Identifier: Apache-2.0

package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/placement"
	"github.com/drover-project/drover/internal/words"
)

// actionLeave is what an event about a Module that leaves says was being done.
const actionLeave = "Unload"

// maxNamed is how many nodes an event names per reason.
const maxNamed = 10

// leaves reports whether a Module that is being deleted need not wait for a node: the order to unload stands there, and the
// node is dead or the Module has waited long enough. The order is not taken back. A node that comes back finds it, and its
// entry is taken out by a pass that has no Module any more.
//
// A pause of the node lets go too, since its end is an event that brings the order; only one of the Module itself holds it,
// for without the Module nobody would know of it.
func (pl *planner) leaves(s *step) bool {
	m, v := pl.snap.module, s.view
	if m.DeletionTimestamp == nil || placement.Paused(m) || v.entry == nil || s.write != nil {
		return false
	}
	if v.entry.State != v1beta1.NodeModuleAbsent && !placement.Paused(v.node) {
		return false
	}
	left := m.DeletionTimestamp.Add(placement.Patience(m)).Sub(pl.now)
	if at, dies := placement.DeadAt(v.node); dies {
		left = min(left, at.Sub(pl.now))
	}
	if left <= 0 {
		return true
	}
	pl.due(left)
	return false
}

// leftover tells what a Module leaves behind where: the same grounds that its condition has given so far.
func leftover(views []*view) string {
	byGround, grounds := map[string][]string{}, []string{}
	for _, v := range views {
		g := v.ground()
		if byGround[g] == nil {
			grounds = append(grounds, g)
		}
		byGround[g] = append(byGround[g], v.name)
	}
	slices.Sort(grounds)
	parts := make([]string, 0, len(grounds))
	for _, g := range grounds {
		reason, message, _ := strings.Cut(g, ": ")
		part := reason + " on " + words.List(byGround[g], maxNamed)
		if message != "" {
			part += ": " + message
		}
		parts = append(parts, part)
	}
	nodes := "1 node"
	if len(views) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(views))
	}
	return fmt.Sprintf("Gone without an answer from %s, where the orders to unload stand; %s", nodes, strings.Join(parts, "; "))
}

// ground is why a node has not been left, as "reason: message".
func (v *view) ground() string {
	reason, message := v1beta1.ReasonAgentMissing, ""
	switch {
	case v.attempt != nil && v.attempt.Reason != "" && v.attempt.State != v1beta1.AttemptAbsent:
		reason, message = v.attempt.Reason, v.attempt.Message
	case placement.Paused(v.node):
		reason = v1beta1.ReasonPaused
	case !placement.Ready(v.node):
		reason = v1beta1.ReasonNodeNotReady
	}
	message, _, _ = strings.Cut(strings.TrimSpace(message), "\n")
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
