// SPDX-License-Identifier: Apache-2.0

// Package status computes a Module's status from facts. It is the only code that decides about
// conditions, and it is pure: the same facts give the same status.
package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Content is what a node got for an image.
type Content struct {
	Image string
	Same  string // equal for nodes that should have got the same content
	// Digest of what the image brought.
	Digest string
}

// Node is what is known about one Module on one node that it selects or is live on.
type Node struct {
	Name   string
	Ready  bool // the node's own Ready condition
	Wanted bool // the Module belongs on the node, the mapping of its kernel aside
	// Tainted is the key of the node's taint that asks for the unload; empty: none does. The node may
	// have nothing of the Module any more, and nothing else keeps it out.
	Tainted string
	Kernel  string // the node's kernel version
	// Unmapped is why no image could be found for the kernel; nil when one was found.
	Unmapped *reasons.Problem
	Ordered  bool // the node's NodeModulesConfig has an order to load this Module
	// Pending: the node has any order, or something live. A deleted Module waits for it.
	Pending bool
	// Paused by annotation.
	Paused bool
	// Struck is why no further node gets the order, on the node that went down and on waiting ones.
	Struck       *reasons.Problem
	RetryIgnored bool // the node's annotation asks for a retry at what is not a valid time
	Silent       bool // nobody has answered an order to unload for [Silence]
	Live         bool // the kernel module is in the kernel, in this boot, whatever build
	// Usable: live, and to stay: the ready label. The order can be older than the Module.
	Usable    bool
	Available bool // live as the Module asks for it now
	// Attempt is what the agent says about an order that is not carried out, or nil.
	Attempt  *v1beta1.NodeModuleAttempt
	Delivery *reasons.Problem // what keeps the image from the node, or nil
	// Image is the one that is built or signed in the cluster for the node, or nil.
	Image   *desired.Image
	Content *Content // what the node holds of what the Module asks for, or nil
	// Unlabelled: the node label that drives ordered upgrades does not name the Module's version.
	Unlabelled bool
	// Labels is why the node's labels that speak of the Module cannot be written, or nil.
	Labels *reasons.Problem
	// PluginReady: a pod of the device plugin or DRA driver is ready on the node.
	PluginReady bool
}

// Unsupported is a node on which no agent can run.
type Unsupported struct {
	Name string
	// Why begins with a verb: "runs windows".
	Why string
}

// Module is what is known about one Module.
type Module struct {
	// Generation of the Module that the facts are about.
	Generation int64
	Deleting   bool // the Module has a deletion timestamp
	// Patience is how long a Module that is being deleted waits for nodes; 0: unknown.
	Patience time.Duration
	ReadOnly *reasons.Problem // why Drover changes nothing in the cluster, or nil
	// Paused by annotation.
	Paused bool
	// RetryIgnored: the Module's annotation asks for a retry at what is not a valid time.
	RetryIgnored bool
	// Loads, HasPlugin and HasDRA tell what the Module asks for.
	Loads, HasPlugin, HasDRA bool
	// Makes: images of the Module are built or signed in the cluster, where its mappings say so.
	Makes bool
	// MakesNone: the Module asks for builds or signatures, and this operator makes none.
	MakesNone    bool
	ImageProblem *reasons.Problem // why an image cannot even be begun, or nil
	// PluginProblem is why the objects of the device plugin or DRA driver cannot be made, or nil.
	PluginProblem *reasons.Problem
	// TaintProblem is why the Module's startup taint is removed from no node, or nil.
	TaintProblem *reasons.Problem
	// Others is what keeps images from more nodes than can be named, or nil.
	Others *reasons.Problem
	// RebuildTrigger is spec.imageRebuildTriggerGeneration, RebuiltTrigger that of status.
	RebuildTrigger, RebuiltTrigger *int
	Nodes                          []Node
	// Unsupported are selected nodes that cannot run an agent. They count nowhere; where there are no
	// others, they explain why.
	Unsupported []Unsupported
	Rollout     *rollout.Plan // which nodes may be changed now; nil: all of them
}

// Entry is one Module's part of a NodeModulesConfig.
type Entry struct{ rollout.Entry }

// EntryOf finds a Module's part of a NodeModulesConfig, which may be nil.
func EntryOf(nmc *v1beta1.NodeModulesConfig, namespace, name string) Entry {
	return Entry{rollout.EntryOf(nmc, types.NamespacedName{Namespace: namespace, Name: name})}
}

// Ordered is true when the node should hold the Module.
func (e Entry) Ordered() bool {
	return e.Order != nil && e.Order.State != v1beta1.NodeModuleAbsent
}

// Pending is true when the node has an order, of whatever kind, or something live.
func (e Entry) Pending() bool { return e.Order != nil || e.Live != nil }

// Unanswered is true when nothing has been said about an order to unload.
func (e Entry) Unanswered() bool {
	return e.Order != nil && e.Order.State == v1beta1.NodeModuleAbsent && e.Attempt == nil
}

// Usable is true when what is live passes the Module's checks, and is to stay: it is what is
// ordered, or the order waits for a boot, has failed, or is paused. Any other order makes it false
// at once, so that the device plugin leaves before the agent unloads. The order does not show an
// image that changed under its name: then the agent reports that it is in use.
func (e Entry) Usable(node *corev1.Node) bool {
	leaving := e.Attempt != nil && e.Attempt.State == v1beta1.AttemptInUse
	return e.Ordered() && e.Order.State != v1beta1.NodeModuleDraining && e.IsLive(node) && !leaving && !e.observed().Unusable &&
		(rollout.SameBuild(&e.Order.Config, e.Live.Config) || e.Stays())
}

func (e Entry) observed() v1beta1.ObservedModule {
	return ptr.Deref(e.Live.Observed, v1beta1.ObservedModule{})
}

// Current is true when what is live is what the Module asks for now; nil asks for nothing. An order
// can be older than the Module, or the same for an image that was built again under its name; the
// delivery tells the two builds apart.
func (e Entry) Current(node *corev1.Node, ask *desired.State) bool {
	if ask == nil || !e.Usable(node) || e.open() || !rollout.SameBuild(&ask.Config, e.Live.Config) {
		return false
	}
	if e.Order.Delivery == nil {
		return true // another operator's order has no delivery
	}
	if by := e.observed().Delivery; by != "" && by != ask.Delivery {
		return false
	}
	return e.Order.Delivery.ID == ask.Delivery && (e.observed().BuiltIn || e.Holds(ask.Delivery))
}

func (e Entry) open() bool {
	if e.Attempt == nil || rollout.Remark(e.Attempt) {
		return false
	}
	switch e.Attempt.State {
	case v1beta1.AttemptFailed, v1beta1.AttemptInUse, v1beta1.AttemptWaiting:
		return true
	case v1beta1.AttemptAbsent, v1beta1.AttemptUnclaimed:
	}
	return false
}
