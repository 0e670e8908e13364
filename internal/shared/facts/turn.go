// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Rollout says which nodes may change now, as the module controller sees it; nil: nothing to
// decide, or node labels decide.
func (s *Scene) Rollout(nodes []corev1.Node, now time.Time) *rollout.Plan {
	if !s.planned() {
		return nil
	}
	parts, policy := s.parts(nodes), rollout.PolicyOf(s.Module)
	if s.Seen != nil {
		s.Seen.Date(types.NamespacedName{Namespace: s.Module.Namespace, Name: s.Module.Name}, parts, policy, now)
	}
	return rollout.Make(parts, policy, now)
}

// Forecast is how the rollout goes on; nil as for [Scene.Rollout].
func (s *Scene) Forecast(nodes []corev1.Node, now time.Time) *rollout.Forecast {
	if !s.planned() {
		return nil
	}
	return rollout.Foresee(s.parts(nodes), rollout.PolicyOf(s.Module), now)
}

func (s *Scene) planned() bool {
	m := s.Module
	return m.Spec.ModuleLoader != nil && m.DeletionTimestamp == nil && !rollout.Labelled(m)
}

func (s *Scene) parts(nodes []corev1.Node) []rollout.Node {
	var parts []rollout.Node
	for i := range nodes {
		if part, ok := s.part(&nodes[i]); ok {
			parts = append(parts, part)
		}
	}
	return parts
}

// part is a node's part of the rollout; false: it has none.
func (s *Scene) part(node *corev1.Node) (rollout.Node, bool) {
	entry, a := s.Entry(node.Name), s.Wants(node)
	return desired.Part(s.Module, &a, rollout.Facts{
		Node: node, Order: entry.Order, Live: entry.Live, Attempt: entry.Attempt, Artifacts: entry.Artifacts,
		// A build that is held does not wait for a turn.
		Paused: placement.WishesFor(s.Module, node).Paused || s.Held.On(a.State, entry) != nil,
		Begun:  drain.Marked(node, types.NamespacedName{Namespace: s.Module.Namespace, Name: s.Module.Name}),
		Late:   s.Deliveries(node.Name) != nil,
		Later:  rollout.Grace(s.Module) > 0,
	})
}

func (s *Scene) unlabelled(node *corev1.Node) bool {
	m := s.Module
	return rollout.Labelled(m) && node.Labels[v1beta1.VersionWorkerLabel(m.Namespace, m.Name)] != m.Spec.ModuleLoader.Container.Version
}
