// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/claims"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

// maxClaims is how many claims a message names.
const maxClaims = 3

// Drain is what has to leave a node for its order: pods, and what holds devices of a DRA driver.
type Drain struct {
	// Empty the node before anything is written.
	Empty bool
	// Evict are pods that hold the kernel module, or devices of its driver.
	Evict []drain.Meant
	// Uncordon what was cordoned for the Module.
	Uncordon bool
	// Options of the Module's rollout.
	Options v1beta1.DrainOptions
	// Hold keeps the Delivery's order back, or is nil. First is then the order to write in its
	// place, or nil; Restores: it calls the DRA driver back for pods that could not end without it.
	Hold     *Hold
	First    *v1beta1.NodeModuleSpec
	Restores bool
	// Released: nothing holds devices, says the cache. The API server is to be asked, too.
	Released bool
	// Taint the node's devices, for its change begins.
	Taint bool
	// Left: a Module that is being deleted no longer waits for the node. Due is until then, or until
	// the node is uncordoned in any case.
	Left bool
	Due  time.Duration
}

// Drain decides what has to leave a node for the order that is to be written.
func (p *Pass) Drain(n *Node, a *Aim, t *Turn, d *Delivery) Drain {
	return p.leave(n, d, p.devices(n, d, p.pods(n, a, t, d)))
}

// pods decides what spec.rollout.drain asks for:
//
//	Node:    cordoned, pods evicted ──none left──► the order ──► done ──► uncordoned, if it was us
//	Holders: the order ──► the agent names pods that hold the kernel module ──► these evicted
//
// Only where the rollout bounds how many nodes are at it: the deletion of a Module, which unloads
// everywhere at once, drains nothing. Nothing is remembered but the cordon's mark on the node.
func (p *Pass) pods(n *Node, a *Aim, t *Turn, d *Delivery) Drain {
	r := Drain{}
	switch {
	case n.Node == nil:
		return r
	case a.Keep && a.Unload == "":
		// A turn that had begun is called off: nothing is to change here for now.
		r.Uncordon = drain.Marked(n.Node, p.Key) && !a.Wishes.Paused && !n.Changing()
		return r
	}
	policy, bounded := p.drainPolicy(n)
	if bounded && p.Module.Spec.Rollout.DrainOptions != nil {
		r.Options = *p.Module.Spec.Rollout.DrainOptions
	}
	ready := bounded && placement.Ready(n.Node)
	if ready && policy == v1beta1.DrainNode && d.Order != nil && d.Order.UnloadPolicy != v1beta1.UnloadOnReboot &&
		(n.inKernel() && n.disturbs(d.Order) || p.first(n, a)) {
		r.Empty = true
		return r
	}
	if ready && policy != v1beta1.DrainNone && policy != "" && n.Attempt != nil && n.Attempt.State == v1beta1.AttemptInUse {
		r.Evict = p.holders(n)
	}
	r.Uncordon = drain.Marked(n.Node, p.Key) && !p.underway(n, a, t, d)
	if r.Uncordon && t.Awaited > 0 {
		r.Uncordon, r.Due = false, t.Awaited
	}
	return r
}

// drainPolicy is the Module's, and whether the rollout bounds how many nodes are drained at a time.
// A drain that a ModulePolicy does not allow evicts nothing.
func (p *Pass) drainPolicy(n *Node) (policy v1beta1.DrainPolicy, bounded bool) {
	if p.rolls() && p.Module.Spec.Rollout != nil && p.Policies.Drains(p.Module.Spec.Rollout.Drain, p.place(n)) {
		return p.Module.Spec.Rollout.Drain, true
	}
	return v1beta1.DrainNone, false
}

// first reports whether a first load takes out what pods may use.
func (p *Pass) first(n *Node, a *Aim) bool {
	if n.follows() || a.Order == nil {
		return false
	}
	part, _ := p.part(n, a)
	return part.First
}

// underway reports whether a change that the node was cordoned for goes on there.
func (p *Pass) underway(n *Node, a *Aim, t *Turn, d *Delivery) bool {
	switch {
	case n.Order == nil || d.Remove:
		return false
	case n.Order.State == v1beta1.NodeModuleDraining:
		return true
	case a.Order == nil:
		return n.unloads() && n.inKernel()
	case t.Stay != nil:
		return false // it has lost its turn
	}
	part, _ := p.part(n, a)
	return part.Since.IsZero() && part.Failed == "" && !part.Rests
}

// devices keeps back what would take the kernel module away under devices that pods have claimed:
//
//	Present ──no claim──► Draining: the driver leaves with the ready label ──no claim──► the order
//	   ▲                     │
//	   └───────a claim───────┘
//
// A claim that comes meanwhile brings the driver back: without it, its pod could not end. All this
// ends with the patience of a Module that is being deleted. A node that is not Ready carries out
// nothing anyway.
func (p *Pass) devices(n *Node, d *Delivery, r Drain) Drain {
	if p.Devices.Driver == "" || d.Order == nil || !n.inKernel() || !placement.Ready(n.Node) ||
		!n.disturbs(d.Order) || p.patience() <= 0 {
		return r
	}
	r.Taint = true
	draining := n.Order != nil && n.Order.State == v1beta1.NodeModuleDraining
	switch names := claims.On(n.Node, p.Devices.Claims); {
	case len(names) > 0:
		r.Hold = &Hold{By: Claims, Problem: claimed(p.Devices.Driver, names)}
		// A drain of the node evicts all pods anyway.
		if policy, _ := p.drainPolicy(n); policy == v1beta1.DrainHolders && d.Order.UnloadPolicy != v1beta1.UnloadOnReboot {
			r.Evict = slices.Concat(r.Evict, claims.Pods(n.Node, p.Devices.Claims))
		}
		if draining {
			r.First, r.Restores = n.inState(v1beta1.NodeModulePresent, ""), true
		}
	case n.Order != nil && !draining:
		r.Hold, r.First = &Hold{By: Claims}, n.inState(v1beta1.NodeModuleDraining, d.Order.Reason)
	case p.Devices.Pods[n.Name].Name != "": // it is on its way
		r.Hold = &Hold{By: Claims, Problem: p.lingers(p.Devices.Pods[n.Name])}
	default:
		r.Released = true
	}
	return r
}

// overdue is how long after its time a pod may end before that is worth a word.
const overdue = time.Minute

// lingers tells of a pod of the DRA driver that should have ended, or is nil: every change waits
// for such a pod, and few for long. The text does not change with time.
func (p *Pass) lingers(pod DriverPod) *reasons.Problem {
	if pod.Ends.IsZero() || p.Now.Before(pod.Ends.Add(overdue)) {
		return nil
	}
	return &reasons.Problem{Reason: v1beta1.ReasonInUse, Message: fmt.Sprintf(
		"pod %s of the DRA driver %s was to end by %s and has not: look at its finalizers and at the kubelet of its node",
		pod.Name, p.Devices.Driver, pod.Ends.UTC().Format(time.RFC3339))}
}

// claimed tells by which claims pods hold a node's devices.
func claimed(driver string, names []string) *reasons.Problem {
	return &reasons.Problem{
		Reason:  v1beta1.ReasonInUse,
		Message: "pods hold devices of " + driver + " by ResourceClaims " + words.List(names, maxClaims),
	}
}

// patience is how long a Module still waits for nodes if it is being deleted; else for ever.
func (p *Pass) patience() time.Duration {
	if p.Module.DeletionTimestamp == nil {
		return time.Duration(1<<63 - 1)
	}
	return p.Module.DeletionTimestamp.Add(placement.Patience(p.Module)).Sub(p.Now)
}

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
