// SPDX-License-Identifier: Apache-2.0

// Package facts turns API objects into what is known about a Module on each node. It is pure, and
// shared by the controller that writes Module.status and the command line tool, so that they agree.
package facts

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/status"
)

// Scene is what has been read for one Module. It is not safe for concurrent use.
type Scene struct {
	Module  *v1beta1.Module
	Desired *desired.Fleet // what it wants of nodes
	Held    Held           // the deliveries that go to no further node; see [Judge]
	// Taints are those that ask for an unload.
	Taints placement.UnloadTaints
	// Seen is since when nodes have what is rolled out; nil: as they say themselves.
	Seen *rollout.Sightings
	// Make makes the plan of a rollout; nil is [rollout.Make].
	Make    func(parts []rollout.Node, policy rollout.Policy, now time.Time) *rollout.Plan
	Configs map[string]*v1beta1.NodeModulesConfig // the NodeModulesConfigs by name
	Plugins map[string]bool                       // the nodes with a ready device plugin pod
	// Deliveries tells what keeps the image from a node, or nil.
	Deliveries func(node string) *reasons.Problem
	// Labels tells why labels of a node that speak of the Module cannot be written, or nil. The func
	// is nil where that is not seen.
	Labels func(node string) *reasons.Problem
	Silent bool // orders to unload should have been answered by now
}

// Wants is what the Module wants of a node.
func (s *Scene) Wants(node *corev1.Node) desired.Answer { return s.Desired.On(&node.Status.NodeInfo) }

// unmapped is why nothing can be wanted of a node's kernel, or nil.
func (s *Scene) unmapped(a *desired.Answer) *reasons.Problem {
	switch {
	case s.Module.Spec.ModuleLoader == nil || a.State != nil:
		return nil
	case a.Err != nil:
		return &reasons.Problem{Reason: kernel.Reason(a.Err), Message: a.Err.Error()}
	}
	return &reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping}
}

// Entry is the Module's part of the node's NodeModulesConfig.
func (s *Scene) Entry(node string) status.Entry {
	return status.EntryOf(s.Configs[node], s.Module.Namespace, s.Module.Name)
}

// Node is what is known of one node; false: the Module is not wanted there and nothing of it is,
// and no taint that asks for an unload is why.
func (s *Scene) Node(node *corev1.Node) (status.Node, bool) {
	entry, tainted := s.Entry(node.Name), s.tainted(node)
	wanted := s.Taints.Wanted(s.Module, node, entry.Pending())
	if !wanted && !entry.Pending() {
		return status.Node{Name: node.Name, Ready: placement.Ready(node), Tainted: tainted}, s.Taints.KeepOut(s.Module, node)
	}
	a := s.Wants(node)
	return status.Node{
		Name:     node.Name,
		Ready:    placement.Ready(node),
		Wanted:   wanted,
		Tainted:  tainted,
		Kernel:   kernel.Show(&node.Status.NodeInfo),
		Unmapped: s.unmapped(&a),
		Ordered:  entry.Ordered(),
		Pending:  entry.Pending(),
		Paused:   placement.Paused(node),

		Struck:       s.Held.On(a.State, entry),
		RetryIgnored: placement.RetryIgnored(node),
		Silent:       s.Silent && entry.Unanswered(),
		Live:         entry.IsLive(node),
		Usable:       entry.Usable(node),
		Available:    entry.Current(node, a.State),
		Attempt:      entry.Attempt,
		Delivery:     cmp.Or(s.denied(node.Name, &a, entry), a.Missing(entry.Holds), s.Deliveries(node.Name)),
		Image:        a.Image,
		Content:      contentOf(node, a.State, entry),
		PluginReady:  s.Plugins[node.Name],
		Unlabelled:   s.unlabelled(node),
		Labels:       s.labels(node.Name),
	}, true
}

// tainted is the key of the node's taint that asks for the unload; empty: none does.
func (s *Scene) tainted(node *corev1.Node) string {
	if taint := s.Taints.Asks(s.Module, node); taint != nil {
		return taint.Key
	}
	return ""
}

// See adds what is known of the nodes, and of the rollout, to what is known of the Module.
func (s *Scene) See(about *status.Module, nodes []*corev1.Node, now time.Time) {
	// Probably as many as last time. A status can be edited to say anything.
	last := int(s.Module.Status.ModuleLoader.NodesMatchingSelectorNumber)
	about.Nodes = slices.Grow(about.Nodes, max(0, min(last, len(nodes))))
	for _, n := range nodes {
		if node, concerned := s.Node(n); concerned {
			about.Nodes = append(about.Nodes, node)
		} else if why := placement.Unsupported(n); why != "" && placement.Selects(s.Module, n) {
			about.Unsupported = append(about.Unsupported, status.Unsupported{Name: n.Name, Why: why})
		}
	}
	about.Rollout = s.Rollout(nodes, now)
}

// contentOf is what the node got for what is asked. One reference can name an image for each
// architecture.
func contentOf(node *corev1.Node, want *desired.State, entry status.Entry) *status.Content {
	if want == nil {
		return nil
	}
	for i := range entry.Artifacts {
		if a := &entry.Artifacts[i]; a.ID == want.Delivery {
			p, _ := kernel.PlatformOf(&node.Status.NodeInfo) // only compared
			return &status.Content{Image: want.Config.ContainerImage, Same: a.ID + " " + p.Architecture, Digest: a.Digest}
		}
	}
	return nil
}

// Of is what is known of the Module itself, without its nodes.
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
		PluginProblem:  Problem(module, v1beta1.ProblemPlugin),
		TaintProblem:   Problem(module, v1beta1.ProblemStartupTaint),
		ReadOnly:       refused(module),
		Others:         pick(Problems(module, v1beta1.ProblemDeliveries), v1beta1.OtherNodes),
	}
}

// Rollout says which nodes may change now, as the module controller sees it; nil: nothing to
// decide, or node labels decide.
func (s *Scene) Rollout(nodes []*corev1.Node, now time.Time) *rollout.Plan {
	if !s.planned() {
		return nil
	}
	parts, policy := s.parts(nodes), rollout.PolicyOf(s.Module)
	if s.Seen != nil {
		s.Seen.Date(types.NamespacedName{Namespace: s.Module.Namespace, Name: s.Module.Name}, parts, policy, now)
	}
	if s.Make != nil {
		return s.Make(parts, policy, now)
	}
	return rollout.Make(parts, policy, now)
}

// Forecast is how the rollout goes on; nil as for [Scene.Rollout].
func (s *Scene) Forecast(nodes []*corev1.Node, now time.Time) *rollout.Forecast {
	if !s.planned() {
		return nil
	}
	return rollout.Foresee(s.parts(nodes), rollout.PolicyOf(s.Module), now)
}

func (s *Scene) planned() bool {
	m := s.Module
	return m.DeletionTimestamp == nil && !rollout.Labelled(m)
}

func (s *Scene) parts(nodes []*corev1.Node) []rollout.Node {
	parts := make([]rollout.Node, 0, len(s.Configs))
	for _, node := range nodes {
		if part, ok := s.part(node); ok {
			parts = append(parts, part)
		}
	}
	return parts
}

// part is a node's part of the rollout; false: it has none.
func (s *Scene) part(node *corev1.Node) (rollout.Node, bool) {
	entry, a := s.Entry(node.Name), s.Wants(node)
	return desired.Part(s.Module, &a, s.Taints, rollout.Facts{
		Node: node, Entry: entry.Entry,
		// A build that is held, or denied, does not wait for a turn.
		Paused: placement.WishesFor(s.Module, node).Paused || s.Held.On(a.State, entry) != nil || s.denied(node.Name, &a, entry) != nil,
		Begun:  drain.Marked(node, types.NamespacedName{Namespace: s.Module.Namespace, Name: s.Module.Name}),
		Late:   s.Deliveries(node.Name) != nil,
		Later:  rollout.Grace(s.Module) > 0,
	})
}

// denied is why a ModulePolicy keeps an order from a node, as the controller of orders says, or
// nil. What it says of nodes that are not named is true of those that do not have the order.
func (s *Scene) denied(node string, a *desired.Answer, entry status.Entry) *reasons.Problem {
	if p := s.Deliveries(node); p != nil {
		if p.Reason == v1beta1.ReasonPolicyDenied {
			return p
		}
		return nil
	}
	if o := entry.Order; a.State == nil || o != nil && rollout.SameBuild(&o.Config, &a.State.Config) {
		return nil
	}
	for i := range s.Module.Status.Problems {
		p := &s.Module.Status.Problems[i]
		if p.Part == v1beta1.ProblemDeliveries && p.Node == v1beta1.OtherNodes && p.Reason == v1beta1.ReasonPolicyDenied {
			return &reasons.Problem{Reason: p.Reason, Message: p.Message}
		}
	}
	return nil
}

func (s *Scene) labels(node string) *reasons.Problem {
	if s.Labels == nil {
		return nil
	}
	return s.Labels(node)
}

func (s *Scene) unlabelled(node *corev1.Node) bool {
	m := s.Module
	return rollout.Labelled(m) && node.Labels[v1beta1.VersionWorkerLabel(m.Namespace, m.Name)] != m.Spec.ModuleLoader.Container.Version
}
