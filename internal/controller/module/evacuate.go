// SPDX-License-Identifier: Apache-2.0

package module

import (
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/drain"
	"github.com/drover-project/drover/internal/placement"
)

// evacuate decides what spec.rollout.drain asks for on a node:
//
//	Node:    its turn comes ──► cordoned, pods evicted ──none left──► the order ──► the change is over ──► uncordoned, if it was us
//	Holders: the order ──► the agent names pods that hold the kernel module ──► these evicted ──► it goes
//
// Only where the rollout bounds how many nodes are at it, so the deletion of a Module, which unloads everywhere at once, drains nothing. Nothing
// is remembered but the cordon's mark on the node.
func (pl *planner) evacuate(s *step, a *aim) {
	v := s.view
	if v.node == nil || a.keep && a.leave == "" {
		return
	}
	policy, bounded := pl.drainPolicy()
	if m := pl.snap.module; bounded && m.Spec.Rollout.DrainOptions != nil {
		s.options = *m.Spec.Rollout.DrainOptions
	}
	ready := bounded && placement.Ready(v.node)
	if ready && policy == v1beta1.DrainNode && s.write != nil && v.inKernel() && disturbs(v.entry, s.write) &&
		s.write.UnloadPolicy != v1beta1.UnloadOnReboot {
		s.empty = true
		return
	}
	if ready && policy != v1beta1.DrainNone && policy != "" && v.attempt != nil && v.attempt.State == v1beta1.AttemptInUse {
		s.evict = len(v.attempt.Holders) > 0
	}
	s.uncordon = drain.Marked(v.node, pl.snap.key) && !pl.underway(s, a)
}

// drainPolicy is the Module's, and whether the rollout bounds how many nodes are drained at a time.
func (pl *planner) drainPolicy() (policy v1beta1.DrainPolicy, bounded bool) {
	if m := pl.snap.module; pl.rollout != nil && m.Spec.Rollout != nil {
		return m.Spec.Rollout.Drain, true
	}
	return v1beta1.DrainNone, false
}

// underway reports whether a change that the node was cordoned for goes on there.
func (pl *planner) underway(s *step, a *aim) bool {
	v := s.view
	switch {
	case v.entry == nil || s.remove:
		return false
	case v.entry.State == v1beta1.NodeModuleDraining:
		return true
	case a.order == nil:
		return v.entry.State == v1beta1.NodeModuleAbsent && v.inKernel()
	case a.stay != nil:
		return false // it has lost its turn
	}
	n, _ := pl.part(v, a)
	return n.Since.IsZero() && n.Failed == "" && !n.Rests
}
