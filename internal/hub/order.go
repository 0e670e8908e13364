// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// rest is the wave of clusters that no wave selects.
const rest = "rest"

// everything may change at a time if nobody limits it.
var everything = intstr.FromString("100%")

// Cluster is how far one cluster is.
type Cluster struct {
	Name   string
	Labels map[string]string
	// Sent: the cluster was sent what is wanted now.
	Sent bool
	// Ready: with what it was sent. Away: it is not reached, and its last report may be outdated.
	Ready, Away bool
	// Unknown: what it has is not known. It may have been sent what is wanted, and not be Ready.
	Unknown bool
	// Declaration of what it is Ready with.
	Declaration string
	// Failed is the reason why it will not become Ready by itself; empty: it may.
	Failed string
	// Held: its images exist.
	Held bool
}

// Order is what may happen now.
type Order struct {
	// Send are the clusters that may be sent what is wanted.
	Send map[string]bool
	// Wave is the first that is not done, by number of so many; 0 of 0: all are.
	Wave       string
	Number, Of int
	// Waiting clusters are in a later wave, or wait for a place in theirs. Failed are in this wave.
	Waiting int
	Failed  []string
	Reason  string
	Halt    rollout.Halt
	// Again is when the answer changes without an event; zero: never.
	Again time.Time
}

// OrderOf says which clusters may be sent what is wanted now. Only the first wave that is not done
// has its turn; in it, the planner of nodes decides. seen dates soak times.
func OrderOf(m *hubv1beta1.ManagedClusterModule, clusters []Cluster, seen *rollout.Sightings, now time.Time) *Order {
	o, spec := &Order{Send: map[string]bool{}}, m.Spec.Rollout
	if spec == nil {
		seen.Forget(types.NamespacedName{Name: m.Name})
		for i := range clusters {
			if clusters[i].Held {
				o.Send[clusters[i].Name] = true
			}
		}
		return o
	}
	policy := policyOf(spec)
	waves, names := sort(spec.Waves, clusters)
	nodes := nodesOf(slices.Concat(waves...), now)
	seen.Date(types.NamespacedName{Name: m.Name}, nodes, policy, now)
	for i, wave := range waves {
		of := nodes[:len(wave)]
		nodes = nodes[len(wave):]
		if o.Number > 0 {
			o.Waiting += behind(wave)
			continue
		}
		plan := rollout.Make(of, policy, now)
		for name := range plan.Start {
			o.Send[name] = true
		}
		o.Failed, o.Reason, o.Halt = append(o.Failed, plan.Failed...), plan.Reason, plan.Halt
		if at := plan.Again; !at.IsZero() && (o.Again.IsZero() || at.Before(o.Again)) {
			o.Again = at
		}
		if plan.Done < plan.Total {
			o.Wave, o.Number, o.Of = names[i], i+1, len(waves)
			o.Waiting += plan.Waiting - len(plan.Start)
		}
	}
	return o
}

func policyOf(spec *hubv1beta1.ClusterRollout) rollout.Policy {
	p := rollout.Policy{MaxUnavailable: everything, Paused: spec.Paused, PauseOnFailure: spec.PauseOnFailure == nil || *spec.PauseOnFailure}
	if spec.MaxConcurrency != nil {
		p.MaxUnavailable = *spec.MaxConcurrency
	}
	if spec.Soak != nil {
		p.Soak = spec.Soak.Duration
	}
	return p
}

// sort puts each cluster into the first wave that selects it, or a last one, without empty waves.
func sort(waves []hubv1beta1.Wave, clusters []Cluster) (sorted [][]Cluster, names []string) {
	all := make([][]Cluster, len(waves)+1)
	for i := range clusters {
		at := 0
		for at < len(waves) && !labels.SelectorFromSet(waves[at].Selector).Matches(labels.Set(clusters[i].Labels)) {
			at++
		}
		all[at] = append(all[at], clusters[i])
	}
	for i, wave := range all {
		if len(wave) == 0 {
			continue
		}
		sorted = append(sorted, wave)
		if i < len(waves) {
			names = append(names, waves[i].Name)
		} else {
			names = append(names, rest)
		}
	}
	return sorted, names
}

// nodesOf are clusters as nodes of the planner. One that has nothing yet is behind, too: a first
// Module may be as bad as a later one. One that is away has its turn when it is back, and takes no
// place until then, unless it went away before it was Ready with what it was sent, or may have.
func nodesOf(clusters []Cluster, now time.Time) []rollout.Node {
	nodes := make([]rollout.Node, 0, len(clusters))
	for i := range clusters {
		c := &clusters[i]
		n := rollout.Node{Name: c.Name, Ready: true, Serving: true, Held: c.Held, Late: !c.Held, Stage: rollout.Behind, Paused: c.Away}
		if c.Sent {
			n.Stage, n.Ready, n.Failed = rollout.Given, c.Ready || !c.Away, c.Failed
			if n.Rests = c.Ready && c.Away; c.Ready && !c.Away {
				n.Since, n.Load = now, rollout.Load{Boot: c.Declaration}
			}
		}
		if c.Unknown {
			n.Stage, n.Ready = rollout.Given, false
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func behind(clusters []Cluster) int {
	n := 0
	for i := range clusters {
		if !clusters[i].Sent {
			n++
		}
	}
	return n
}
