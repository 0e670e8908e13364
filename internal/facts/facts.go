// SPDX-License-Identifier: Apache-2.0

// Package facts turns API objects into what is known about a Module on each node. It is pure, and shared by the controller
// that writes Module.status and by the command line tool, so that `drover explain` and the status can never disagree.
package facts

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/kernel"
	"github.com/drover-project/drover/internal/placement"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/rollout"
	"github.com/drover-project/drover/internal/status"
)

// Scene is what has been read for one Module. What it holds is not changed. It is not safe for concurrent use.
type Scene struct {
	Module *v1beta1.Module
	// Asks are what the Module asks for.
	Asks *Asks
	// Makes: somebody builds and signs images in the cluster; Images are the Module's, and ImageProblem why one cannot even be begun, or nil.
	Makes        bool
	Images       []v1alpha1.ModuleImage
	ImageProblem *reasons.Problem
	// Held are the deliveries that go to no further node; see [Judge].
	Held Held
	// Seen is since when nodes have what is rolled out; nil: as they say themselves.
	Seen *rollout.Sightings
	// Configs are the NodeModulesConfigs by name.
	Configs map[string]*v1beta1.NodeModulesConfig
	// Plugins are the nodes with a ready device plugin pod.
	Plugins map[string]bool
	// Deliveries tells what keeps the image from a node, or nil.
	Deliveries func(node string) *reasons.Problem
	// Silent: orders to unload should have been answered by now.
	Silent bool
	// wants are remembered, by kernel and architecture.
	wants map[string]want
}

// Entry is the Module's part of the node's NodeModulesConfig.
func (s *Scene) Entry(node string) status.Entry {
	return status.EntryOf(s.Configs[node], s.Module.Namespace, s.Module.Name)
}

// Node is what is known of one node; false: the Module neither belongs there nor is anything of it there.
func (s *Scene) Node(node *corev1.Node) (status.Node, bool) {
	entry := s.Entry(node.Name)
	wanted := placement.Wanted(s.Module, node, entry.Pending())
	if !wanted && !entry.Pending() {
		return status.Node{}, false
	}
	w := s.want(node)
	ask := w.ask
	return status.Node{
		Name:     node.Name,
		Ready:    placement.Ready(node),
		Wanted:   wanted,
		Kernel:   kernel.Trim(node.Status.NodeInfo.KernelVersion),
		Unmapped: w.unmapped,
		Ordered:  entry.Ordered(),
		Pending:  entry.Pending(),
		Paused:   placement.Paused(node),

		Struck:       s.Held.On(ask, entry),
		RetryIgnored: placement.RetryIgnored(node),
		Silent:       s.Silent && entry.Unanswered(),
		Live:         entry.IsLive(node),
		Usable:       entry.Usable(node),
		Available:    entry.Current(node, ask),
		Attempt:      entry.Attempt,
		Delivery:     s.deliveryProblem(node.Name, entry, &w),
		Image:        w.image,
		Content:      contentOf(node, ask, entry),
		PluginReady:  s.Plugins[node.Name],
		Unlabelled:   s.unlabelled(node),
	}, true
}

// Unsupported is a node that the Module selects, and on which no agent can run; false: it is none.
func (s *Scene) Unsupported(node *corev1.Node) (status.Unsupported, bool) {
	why := placement.Unsupported(node)
	return status.Unsupported{Name: node.Name, Why: why}, why != "" && placement.Selects(s.Module, node)
}

// contentOf is what the node got for what is asked. One reference can name an image for each architecture, and the same
// kernel version can stand for several.
func contentOf(node *corev1.Node, ask *status.Ask, entry status.Entry) *status.Content {
	if ask == nil {
		return nil
	}
	for i := range entry.Artifacts {
		if a := &entry.Artifacts[i]; a.ID == ask.Delivery {
			return &status.Content{Image: ask.Config.ContainerImage, Same: a.ID + " " + node.Status.NodeInfo.Architecture, Digest: a.Digest}
		}
	}
	return nil
}

// Of is what is known of the Module itself, without nodes and without what only the operator knows.
func Of(module *v1beta1.Module) status.Module {
	return status.Module{
		Patience:       placement.Patience(module),
		Generation:     module.Generation,
		Deleting:       module.DeletionTimestamp != nil,
		Paused:         placement.Paused(module),
		RetryIgnored:   placement.RetryIgnored(module),
		Loads:          module.Spec.ModuleLoader != nil,
		HasPlugin:      module.Spec.DevicePlugin != nil,
		HasDRA:         module.Spec.DRA != nil,
		RebuildTrigger: module.Spec.ImageRebuildTriggerGeneration,
		RebuiltTrigger: module.Status.ImageRebuildTriggerGeneration,
	}
}
