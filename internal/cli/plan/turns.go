// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/words"
)

// Rollout is the order in which nodes would lose what they have, to get something else or nothing.
type Rollout struct {
	// Labels: node labels drive the Module's upgrades, so whoever sets them gives turns.
	Labels bool `json:"labels,omitempty"`
	// MaxUnavailable as set or by default, and Limit, the number of nodes that it allows.
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	Limit          int    `json:"limit,omitempty"`
	// Unavailable is how many of Total nodes are unavailable already.
	Total       int `json:"total,omitempty"`
	Unavailable int `json:"unavailable,omitempty"`
	// Soak is how long a node must hold the change before it frees its place; empty: until it is live.
	Soak string `json:"soak,omitempty"`
	// Trial: the first step must prove the change. PauseOnFailure: a failed node stops the rest.
	Trial          bool                `json:"trial,omitempty"`
	PauseOnFailure bool                `json:"pauseOnFailure,omitempty"`
	Drain          v1beta1.DrainPolicy `json:"drain,omitempty"` // spec.rollout.drain
	Steps          [][]string          `json:"steps,omitempty"` // nodes that change together, in order
	Left           []Left              `json:"left,omitempty"`  // nodes that get no turn as things stand
	// Deselected are the nodes that wait for drover.dev/confirm-deselection.
	Deselected []string `json:"deselected,omitempty"`
}

// Left are nodes that get no turn, for the same cause.
type Left struct {
	Why   string   `json:"why"`
	Nodes []string `json:"nodes"`
}

// foresee asks the operator's planner in which order nodes would change; nil: none loses anything.
func foresee(m *v1beta1.Module, view *cluster.View) *Rollout {
	if rollout.Labelled(m) {
		return &Rollout{Labels: true}
	}
	scene := view.Scene(m)
	refused := map[string]*reasons.Problem{}
	for i := range view.Nodes {
		if p := denied(scene, view, &view.Nodes[i]); p != nil {
			refused[view.Nodes[i].Name] = p
		}
	}
	told := scene.Deliveries
	scene.Deliveries = func(node string) *reasons.Problem {
		if p := refused[node]; p != nil {
			return p
		}
		return told(node)
	}
	f := scene.Forecast(view.Fleet(), view.Now)
	if f == nil {
		return nil
	}
	// These are told by themselves.
	f.Left = slices.DeleteFunc(f.Left, func(l rollout.Left) bool { return refused[l.Node] != nil })
	if len(f.Steps)+len(f.Left) == 0 {
		return nil
	}
	policy := rollout.PolicyOf(m)
	r := &Rollout{
		MaxUnavailable: policy.MaxUnavailable.String(), Limit: f.Limit, Total: f.Total, Unavailable: f.Unavailable,
		Trial: policy.Trial, PauseOnFailure: policy.PauseOnFailure, Steps: f.Steps, Deselected: f.Mass,
	}
	if policy.Soak > 0 {
		r.Soak = policy.Soak.String()
	}
	if m.Spec.Rollout != nil && m.Spec.Rollout.Drain != v1beta1.DrainNone {
		r.Drain = m.Spec.Rollout.Drain
	}
	for _, left := range f.Left {
		i := slices.IndexFunc(r.Left, func(l Left) bool { return l.Why == left.Why })
		if i < 0 {
			i, r.Left = len(r.Left), append(r.Left, Left{Why: left.Why})
		}
		r.Left[i].Nodes = append(r.Left[i].Nodes, left.Node)
	}
	return r
}

func (r *Rollout) render(c paint.Painter) string {
	const margin = "             "
	if r == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n" + c.Strong("ROLLOUT") + "      ")
	if r.Labels {
		return b.String() + "by node labels: spec.moduleLoader.container.version is set and spec.rollout is not\n"
	}
	fmt.Fprintf(&b, "at most %d of %d nodes unavailable (maxUnavailable %s)", r.Limit, r.Total, r.MaxUnavailable)
	if r.Unavailable > 0 {
		fmt.Fprintf(&b, ", %d already unavailable", r.Unavailable)
	}
	b.WriteString("\n")
	if rules := r.rules(); rules != "" {
		b.WriteString(margin + rules + "\n")
	}
	for i, step := range r.Steps {
		if i == most && len(r.Steps) > most+1 {
			fmt.Fprintf(&b, "%sand %d more steps\n", margin, len(r.Steps)-most)
			break
		}
		fmt.Fprintf(&b, "%sstep %d: %s\n", margin, i+1, words.List(step, most))
	}
	for _, left := range r.Left {
		fmt.Fprintf(&b, "%snot until something changes: %s\n%s  %s\n", margin, words.List(left.Nodes, most), margin, left.Why)
	}
	return b.String()
}

func (r *Rollout) rules() string {
	var all []string
	if r.Trial {
		all = append(all, "one node first")
	}
	if r.Soak != "" {
		all = append(all, "each must be live for "+r.Soak+" before its place is free")
	}
	if r.PauseOnFailure {
		all = append(all, "a failed node stops the rest")
	}
	switch r.Drain {
	case v1beta1.DrainNode:
		all = append(all, "each is emptied first")
	case v1beta1.DrainHolders:
		all = append(all, "pods that use the module are evicted")
	case v1beta1.DrainNone:
	}
	return strings.Join(all, "; ")
}
