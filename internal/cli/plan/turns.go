// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/rollout"
	"github.com/drover-project/drover/internal/words"
)

// Rollout is the order in which nodes would lose what they have, to get something else or nothing in its place.
type Rollout struct {
	// Labels: node labels drive the Module's upgrades, so that somebody else gives the turns.
	Labels bool `json:"labels,omitempty"`
	// MaxUnavailable as it is set, or as it is without spec.rollout, and Limit the nodes that it comes to.
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	Limit          int    `json:"limit,omitempty"`
	// Unavailable is how many of Total nodes are so already.
	Total       int `json:"total,omitempty"`
	Unavailable int `json:"unavailable,omitempty"`
	// Soak is how long a node must hold the change until it gives its place back; empty: as soon as it is live.
	Soak string `json:"soak,omitempty"`
	// Trial: the first step has to prove the change, and PauseOnFailure: a node that fails with it stops the rest.
	Trial          bool `json:"trial,omitempty"`
	PauseOnFailure bool `json:"pauseOnFailure,omitempty"`
	// Drain is what spec.rollout.drain asks for on each node.
	Drain v1beta1.DrainPolicy `json:"drain,omitempty"`
	// Steps are the nodes that change together, in their order.
	Steps [][]string `json:"steps,omitempty"`
	// Left are nodes whose turn does not come as things stand.
	Left []Left `json:"left,omitempty"`
	// Deselected are the nodes that wait for drover.dev/confirm-deselection.
	Deselected []string `json:"deselected,omitempty"`
}

// Left are nodes whose turn does not come, for the same cause.
type Left struct {
	Why   string   `json:"why"`
	Nodes []string `json:"nodes"`
}

// foresee asks the planner of the operator in which order nodes would change; nil: none loses anything.
func foresee(m *v1beta1.Module, view *cluster.View, now time.Time) *Rollout {
	if rollout.Labelled(m) {
		return &Rollout{Labels: true}
	}
	f := view.Scene(m).Forecast(view.Nodes, now)
	if f == nil || len(f.Steps)+len(f.Left) == 0 {
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
	at := map[string]int{}
	for _, left := range f.Left {
		i, known := at[left.Why]
		if !known {
			i = len(r.Left)
			at[left.Why], r.Left = i, append(r.Left, Left{Why: left.Why})
		}
		r.Left[i].Nodes = append(r.Left[i].Nodes, left.Node)
	}
	return r
}

// render is what a person reads of it.
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
		fmt.Fprintf(&b, ", %d of which are so already", r.Unavailable)
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
		fmt.Fprintf(&b, "%snot before something changes: %s\n%s  %s\n", margin, words.List(left.Nodes, most), margin, left.Why)
	}
	return b.String()
}

// rules are what a step has to keep to.
func (r *Rollout) rules() string {
	var all []string
	if r.Trial {
		all = append(all, "one node first")
	}
	if r.Soak != "" {
		all = append(all, "each live for "+r.Soak+" before it gives its place to another")
	}
	if r.PauseOnFailure {
		all = append(all, "a node that fails stops the rest")
	}
	switch r.Drain {
	case v1beta1.DrainNode:
		all = append(all, "each emptied before")
	case v1beta1.DrainHolders:
		all = append(all, "pods that hold it are evicted")
	case v1beta1.DrainNone:
	}
	return strings.Join(all, "; ")
}
