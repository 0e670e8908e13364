// SPDX-License-Identifier: Apache-2.0

// Package status computes a Module's status from facts. It is the only code that decides about conditions, and it is
// pure: the same facts give the same status, whatever the time and the order in which they came.
package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/desired"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/rollout"
)

// Content is what a node got for an image.
type Content struct {
	// Image is its reference.
	Image string
	// Same is equal for nodes that should have got the same.
	Same string
	// Digest of what it brought.
	Digest string
}

// Node is what is known about one Module on one node. Nodes that the Module neither selects nor is live on are left
// out.
type Node struct {
	// Name of the node.
	Name string
	// Ready is the node's own Ready condition.
	Ready bool
	// Wanted: the Module belongs on the node, the mapping of its kernel aside.
	Wanted bool
	// Kernel is the node's kernel version.
	Kernel string
	// Unmapped is why no image could be found for the kernel; nil when one was found.
	Unmapped *reasons.Problem
	// Ordered: the node's NodeModulesConfig has an order to load this Module.
	Ordered bool
	// Pending: an order, of whatever kind, or something live stands there. A Module that leaves waits for it.
	Pending bool
	// Paused by annotation.
	Paused bool
	// Struck is why the order goes to no further node, on a node that it took down and on those that wait for it; nil: nothing.
	Struck *reasons.Problem
	// RetryIgnored: the node's annotation asks for a retry at what is no time.
	RetryIgnored bool
	// Silent: nobody has answered an order to unload for [Silence].
	Silent bool
	// Live: the kernel module is in the kernel, in this boot, whatever build.
	Live bool
	// Usable: live with the configuration that is ordered, and to stay: the ready label. What is ordered can be older
	// than the Module.
	Usable bool
	// Available: live as the Module asks for it now.
	Available bool
	// Attempt is what the agent says about an order that is not fulfilled, or nil.
	Attempt *v1beta1.NodeModuleAttempt
	// Delivery is what keeps the image from the node, or nil.
	Delivery *reasons.Problem
	// Image is the one that is built or signed in the cluster for the node, or nil.
	Image *desired.Image
	// Content is what the node holds of what the Module asks for, or nil.
	Content *Content
	// Unlabelled: the node label that drives ordered upgrades does not name the Module's version.
	Unlabelled bool
	// PluginReady: a pod of the device plugin or DRA driver that the Module asks for is ready on the node.
	PluginReady bool
}

// Unsupported is a node on which no agent can run.
type Unsupported struct {
	// Name of the node.
	Name string
	// Why, as what the node does: "runs windows".
	Why string
}

// Module is what is known about one Module.
type Module struct {
	// Generation of the Module that the facts are about.
	Generation int64
	// Deleting: the Module has a deletion timestamp.
	Deleting bool
	// Patience is how long a Module that is being deleted waits for nodes; 0: unknown.
	Patience time.Duration
	// ReadOnly is why Drover changes nothing in the cluster, or nil.
	ReadOnly *reasons.Problem
	// Paused by annotation.
	Paused bool
	// RetryIgnored: the Module's annotation asks for a retry at what is no time.
	RetryIgnored bool
	// Loads, HasPlugin and HasDRA tell what the Module asks for.
	Loads, HasPlugin, HasDRA bool
	// Makes: images of the Module are built or signed in the cluster, where its mappings say so.
	Makes bool
	// MakesNone: the Module asks for images to be built or signed, and this operator builds and signs none.
	MakesNone bool
	// ImageProblem is why an image cannot even be begun, or nil.
	ImageProblem *reasons.Problem
	// PluginProblem is why the objects of the device plugin or DRA driver cannot be made, or nil.
	PluginProblem *reasons.Problem
	// Others is what keeps images from more nodes than can be named, or nil.
	Others *reasons.Problem
	// RebuildTrigger is spec.imageRebuildTriggerGeneration, and RebuiltTrigger what status says of it so far.
	RebuildTrigger, RebuiltTrigger *int
	// Nodes in any order.
	Nodes []Node
	// Unsupported are nodes that are selected and can have no kernel module, in any order. They count nowhere; where there are no others, they
	// say why.
	Unsupported []Unsupported
	// Rollout is which nodes may be changed now; nil: all of them.
	Rollout *rollout.Plan
}

// Entry is one Module's part of a NodeModulesConfig.
type Entry struct {
	// Order is the entry of spec.modules, or nil.
	Order *v1beta1.NodeModuleSpec
	// Live is the entry of status.modules, or nil.
	Live *v1beta1.NodeModuleStatus
	// Attempt is the entry of status.attempts, or nil.
	Attempt *v1beta1.NodeModuleAttempt
	// Artifacts are the deliveries that the node holds, of all Modules.
	Artifacts []v1beta1.NodeArtifact
}

// EntryOf finds a Module's part of a NodeModulesConfig, which may be nil.
func EntryOf(nmc *v1beta1.NodeModulesConfig, namespace, name string) Entry {
	var entry Entry
	if nmc == nil {
		return entry
	}
	entry.Artifacts = nmc.Status.Artifacts
	for i := range nmc.Spec.Modules {
		if m := &nmc.Spec.Modules[i]; m.Namespace == namespace && m.Name == name {
			entry.Order = m
		}
	}
	for i := range nmc.Status.Modules {
		if m := &nmc.Status.Modules[i]; m.Namespace == namespace && m.Name == name {
			entry.Live = m
		}
	}
	for i := range nmc.Status.Attempts {
		if m := &nmc.Status.Attempts[i]; m.Namespace == namespace && m.Name == name {
			entry.Attempt = m
		}
	}
	return entry
}

// Ordered is true when the node shall hold the Module.
func (e Entry) Ordered() bool {
	return e.Order != nil && e.Order.State != v1beta1.NodeModuleAbsent
}

// Holds is true when the node has got a delivery.
func (e Entry) Holds(delivery string) bool {
	return slices.ContainsFunc(e.Artifacts, func(a v1beta1.NodeArtifact) bool { return a.ID == delivery })
}

// Pending is true when the node has an order, of whatever kind, or something live.
func (e Entry) Pending() bool { return e.Order != nil || e.Live != nil }

// Unanswered is true when nothing has been said about an order to unload.
func (e Entry) Unanswered() bool {
	return e.Order != nil && e.Order.State == v1beta1.NodeModuleAbsent && e.Attempt == nil
}

// IsLive is true when the agent saw the kernel module in the kernel in the node's current boot.
func (e Entry) IsLive(node *corev1.Node) bool {
	return e.Live != nil && e.Live.BootID != "" && e.Live.BootID == node.Status.NodeInfo.BootID
}

// Usable is true when what is live is what is ordered, passes the Module's checks, and is to stay. A changed order makes it false at once, so that
// the device plugin leaves before the agent has to unload. An image that changed under its name is not seen in the
// order: then the agent says that what has to go is in use.
func (e Entry) Usable(node *corev1.Node) bool {
	leaving := e.Attempt != nil && e.Attempt.State == v1beta1.AttemptInUse
	return e.Ordered() && e.Order.State != v1beta1.NodeModuleDraining && e.IsLive(node) && !leaving && !e.failsChecks() && rollout.SameBuild(e.Order.Config, e.loaded())
}

// loaded is what the agent loaded.
func (e Entry) loaded() v1beta1.ModuleConfig { return ptr.Deref(e.Live.Config, v1beta1.ModuleConfig{}) }

// failsChecks is true while the agent sees that a check of readyWhen does not pass.
func (e Entry) failsChecks() bool { return e.Live.Observed != nil && e.Live.Observed.Unusable }

// Current is true when what is live is what the Module asks for now; nil asks for nothing. An order alone does not show
// it: it can be older than the Module, and it can be the same for an image that was built again under its name. What
// the node holds tells those two builds apart.
func (e Entry) Current(node *corev1.Node, ask *desired.State) bool {
	if ask == nil || !e.Usable(node) || e.open() || !rollout.SameBuild(ask.Config, e.loaded()) {
		return false
	}
	if e.Order.Delivery == nil {
		return true // somebody else's order: nothing is known of a delivery
	}
	if by := e.by(); by != "" && by != ask.Delivery {
		return false
	}
	return e.Order.Delivery.ID == ask.Delivery && (e.builtIn() || e.holds(ask.Delivery))
}

// open is true while the agent says that the order is not fulfilled.
func (e Entry) open() bool {
	if e.Attempt == nil {
		return false
	}
	switch e.Attempt.State {
	case v1beta1.AttemptFailed, v1beta1.AttemptInUse, v1beta1.AttemptWaiting:
		return true
	case v1beta1.AttemptAbsent, v1beta1.AttemptUnclaimed:
	}
	return false
}

// by is the delivery that brought what is live, where the agent says it.
func (e Entry) by() string {
	if e.Live.Observed == nil {
		return ""
	}
	return e.Live.Observed.Delivery
}

func (e Entry) builtIn() bool { return e.Live.Observed != nil && e.Live.Observed.BuiltIn }

func (e Entry) holds(id string) bool {
	return slices.ContainsFunc(e.Artifacts, func(a v1beta1.NodeArtifact) bool { return a.ID == id })
}
