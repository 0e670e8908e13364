// SPDX-License-Identifier: Apache-2.0

// Package nodeplan decides what becomes of one Module on one node. It is pure. Each stage takes
// what the earlier ones decided, as values, and adds to it; none takes anything back:
//
//	Node ──► Aim ──► Turn ──► Delivery ──► Drain ──► Step
//	         what    may it   which        what      what is written:
//	         is      change   carrier and  leaves    the order, unless
//	         wanted  now      which order  before    a Hold keeps it back
//
// What the API server refuses (an eviction, a carrier) or has run out of (slots) is a [Hold] that
// the caller adds to the [Plan] before it asks for the [Step].
package nodeplan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/strikes"
)

// OrdersFinalizer keeps a NodeModulesConfig while an order to unload stands in it: without that, a
// Module would go before its kernel module. It goes with the node, too, and while the CRDs leave.
const OrdersFinalizer = "drover.dev/orders"

// Pass is what all nodes of a pass have in common. Its objects are the cache's.
type Pass struct {
	Key types.NamespacedName
	// Module is nil when there is none of that name.
	Module *v1beta1.Module
	// Wants is nil without a Module.
	Wants   *desired.Fleet
	Verdict strikes.Verdict
	// Taints are those that ask for an unload.
	Taints placement.UnloadTaints
	// Policies are the cluster's ModulePolicies, and Namespace the labels of the Module's namespace.
	Policies  modulepolicy.Set
	Namespace map[string]string
	// Defined is since when the cluster has the CRD: earlier Modules went by nobody's wish.
	Defined metav1.Time
	Devices Devices
	// Unsealed is which admission policy is missing that carriers or reports need, or nil.
	Unsealed *reasons.Problem
	Carriers Carriers
	Memory   Memory
	Now      time.Time
	// earlier are the orders of builds that serve while the newer one is halted, by platform; nil: it
	// is not.
	earlier map[kernel.Platform]*v1beta1.NodeModuleSpec
}

// Devices is what is known of the devices of a Module's DRA driver.
type Devices struct {
	// Driver is its name; empty: the Module has none.
	Driver string
	// Claims are those by which pods hold devices.
	Claims []resourcev1.ResourceClaim
	// Pods are those of the driver, by node.
	Pods map[string]DriverPod
}

// DriverPod is a pod of a DRA driver.
type DriverPod struct {
	// Name as namespace/name.
	Name string
	// Ends is by when it was to have ended, as the API server says; zero: nobody has deleted it.
	Ends time.Time
}

// Carriers says how carrier pods are made.
type Carriers struct {
	// Image is the agent's, which runs in them.
	Image string
	Mode  delivery.Mode
	// User of those that run the kernel module image itself; nil lets the cluster choose.
	User *int64
}

// Memory is what the process knows of a Module's nodes and no object shows, or may forget.
type Memory struct {
	Carriers map[types.UID]Sight
	Failures map[Place]Failure
	// Unwanted is since when nodes, by their UID, are in their grace.
	Unwanted map[types.UID]time.Time
	// Silent is since when nodes, by their UID, have not answered an order.
	Silent map[types.UID]time.Time
	// Drains are the nodes, by name, that are being emptied or have passed their turn.
	Drains map[string]Wait
	// Seen are the nodes, by name, whose agents name pods without UIDs.
	Seen map[string]Seen
}

// Sight is what the process knows of a carrier.
type Sight struct {
	// Created: by this process.
	Created bool
	// Runs, or does not, since then, by the clock of this process and not the node's.
	Runs  bool
	Since time.Time
}

// Place is where a delivery failed: another image on the same node starts afresh.
type Place struct{ Node, Image string }

// Failure is a delivery that was refused or ended badly.
type Failure struct {
	Problem reasons.Problem
	// Carrier that ended; "": none was created.
	Carrier types.UID
	// Over: no carrier was created then, but one was since, which has problems of its own to report.
	Over bool
	At   time.Time
	// Rest is how long the delivery rests, and Until is when that ends.
	Rest  time.Duration
	Until time.Time
	// Retry is the last request to try again that stood then; zero: none.
	Retry time.Time
}

// Rests reports whether it is too early to try again and nobody has asked for it since. Requests
// are told apart by their times, which are by clocks of people.
func (f Failure) Rests(now, retry time.Time) bool {
	return now.Before(f.Until) && !retry.After(f.Retry)
}

// Node is what was observed of one node and the Module of the pass. What is not there is nil.
type Node struct {
	Name   string
	Node   *corev1.Node
	Config *v1beta1.NodeModulesConfig
	rollout.Entry
	Carriers []*corev1.Pod
	// Rest says that the last pass found nothing to do here but to wait for a slot, and that nothing
	// has changed since. Nil: it has to be looked at.
	Rest *Rest
}

// Rest is what a pass remembers of a node where there is nothing to do, or that waits for a slot.
type Rest struct {
	// Part of the rollout; Has: the node has one.
	Part rollout.Node
	Has  bool
	// Asks is the image that waits for a slot; empty: none does.
	Asks string
}

// Read takes in the node's NodeModulesConfig.
func (n *Node) Read(module types.NamespacedName, config *v1beta1.NodeModulesConfig) {
	n.Config, n.Entry = config, rollout.EntryOf(config, module)
}

// follows reports whether the node has an order of the Module, or its kernel module.
func (n *Node) follows() bool { return n.Order != nil || n.Live != nil }

// unloads reports whether an order to unload stands.
func (n *Node) unloads() bool { return n.Order != nil && n.Order.State == v1beta1.NodeModuleAbsent }

// Answered reports whether an order to unload stands, and the agent says that nothing is left.
func (n *Node) Answered() bool {
	return n.unloads() && !n.observed() && n.Attempt != nil && n.Attempt.State == v1beta1.AttemptAbsent
}

// observed reports whether our agent saw the kernel module live. What another operator wrote before
// us says nothing of what the kernel holds now.
func (n *Node) observed() bool { return n.Live != nil && n.Live.Observed != nil }

// inKernel reports whether the kernel module is in the kernel in this boot.
func (n *Node) inKernel() bool { return n.Node != nil && n.IsLive(n.Node) }

// carrier is the one that the order names for a delivery.
func (n *Node) carrier(id string) types.UID {
	if n.Order == nil {
		return ""
	}
	for _, d := range []*v1beta1.Delivery{n.Order.Delivery, n.Order.Next} {
		if d != nil && d.ID == id {
			return d.CarrierUID
		}
	}
	return ""
}

// Changing reports whether the node has an order that is not carried out yet. One that failed, or
// waits for the next boot, is over: what is live serves. One whose kernel module drifts is done.
func (n *Node) Changing() bool {
	if n.Node == nil || n.Order == nil {
		return false
	}
	if n.Order.State != "" && n.Order.State != v1beta1.NodeModulePresent {
		return true
	}
	a := n.Attempt
	return !n.done() && (a == nil || a.State != v1beta1.AttemptFailed && a.Reason != v1beta1.ReasonRebootRequired)
}

// done reports whether what the order says is live.
func (n *Node) done() bool {
	if !n.observed() || !n.inKernel() || !rollout.SameBuild(n.Live.Config, &n.Order.Config) {
		return false
	}
	by := n.Live.Observed.Delivery
	return by == "" || by == deliveryOf(n.Order)
}

// Finalized reports whether the finalizer for orders to unload is there.
func Finalized(config *v1beta1.NodeModulesConfig) bool {
	return config != nil && slices.Contains(config.Finalizers, OrdersFinalizer)
}

// Finalizable reports whether the finalizer can stand: none is added to what is being deleted.
func Finalizable(config *v1beta1.NodeModulesConfig) bool {
	return config == nil || config.DeletionTimestamp == nil || Finalized(config)
}

// Unloads reports whether an order to unload stands in the object.
func Unloads(config *v1beta1.NodeModulesConfig) bool {
	return slices.ContainsFunc(config.Spec.Modules, func(o v1beta1.NodeModuleSpec) bool { return o.State == v1beta1.NodeModuleAbsent })
}

// Bare reports whether nothing in the object is worth keeping: no order, and nothing seen live.
func Bare(config *v1beta1.NodeModulesConfig) bool {
	return len(config.Spec.Modules) == 0 &&
		!slices.ContainsFunc(config.Status.Modules, func(s v1beta1.NodeModuleStatus) bool { return s.Observed != nil })
}
