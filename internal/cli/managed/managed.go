// SPDX-License-Identifier: Apache-2.0

// Package managed shows, on a hub, how ManagedClusterModules and their clusters stand, by their
// status alone.
package managed

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// States of ManagedClusterModules and of clusters.
const (
	Ready   = paint.Ready
	Waiting = paint.Waiting
	Failed  = paint.Failed
)

// Row is one ManagedClusterModule.
type Row struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// ReadyClusters of Clusters have it; Loaded of Desired are nodes, of all of them together.
	ReadyClusters int    `json:"readyClusters"`
	Clusters      int    `json:"clusters"`
	Loaded        int    `json:"loaded"`
	Desired       int    `json:"desired"`
	Wave          string `json:"wave,omitempty"`
	Reason        string `json:"reason"`
	Message       string `json:"message,omitempty"`
	Next          string `json:"nextStep,omitempty"`
	Age           string `json:"age"`
}

// RowOf is a ManagedClusterModule as its status has it.
func RowOf(m *hubv1beta1.ManagedClusterModule, now time.Time) Row {
	s := &m.Status
	r := Row{
		Name: m.Name, ReadyClusters: int(s.NumberReady), Clusters: int(s.NumberDesired), Wave: s.Wave,
		Loaded: int(s.ModuleLoader.AvailableNumber), Desired: int(s.ModuleLoader.DesiredNumber),
		Age: duration.HumanDuration(now.Sub(m.CreationTimestamp.Time)),
	}
	c := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionReady)
	if c == nil || c.ObservedGeneration != m.Generation {
		r.State, r.Reason, r.Message = Waiting, "NotSeen", "the hub has not looked at the newest version yet"
		r.Next = "check that drover-hub runs: kubectl get pods -A -l app.kubernetes.io/name=drover-hub"
		return r
	}
	r.State, r.Reason, r.Message = State(c.Status == metav1.ConditionTrue, c.Reason), c.Reason, c.Message
	if r.State != Ready {
		r.Next = next(c.Reason)
	}
	return r
}

// State of what is ready, or of what is not for a reason.
func State(ready bool, reason string) string {
	switch {
	case ready:
		return Ready
	case reasons.Patience(reason):
		return Waiting
	}
	return Failed
}

// ofClusters are the next steps for reasons that are about a cluster.
var ofClusters = map[string]string{
	v1beta1.ReasonAgentMissing:     "find out why the hub does not reach the cluster; the message has its error",
	v1beta1.ReasonAwaitingDelivery: "check that the cluster's work agent runs, and Drover in spoke mode",
	v1beta1.ReasonDeliveryRefused: "read the API server's answer in the message, of the cluster or of its namespace on the hub, and solve " +
		"what it names",
	v1beta1.ReasonMassDeselection: "restore the selector or the clusters' labels, or confirm it with the command in the message, which " +
		"counts for an hour",
	v1beta1.ReasonRollingOut: "wait: spec.rollout sets the order in which clusters get a change, and the message says how far it is",
}

func next(reason string) string { return cmp.Or(ofClusters[reason], reasons.Next(reason)) }

// Worst is the worst state of some.
func Worst(rows []Row) string {
	worst := Ready
	for _, r := range rows {
		if r.State == Failed || r.State == Waiting && worst == Ready {
			worst = r.State
		}
	}
	return worst
}

// Render writes a line for each.
func Render(out io.Writer, p paint.Painter, rows []Row, wide bool) {
	head := []string{"MANAGEDCLUSTERMODULE", "STATE", "CLUSTERS", "LOADED", "WAVE", "REASON", "AGE", "MESSAGE"}
	if !wide {
		head = head[:7]
	}
	var lines [][]string
	for _, r := range rows {
		lines = append(lines, []string{
			r.Name, r.State, of(r.ReadyClusters, r.Clusters), of(r.Loaded, r.Desired), cmp.Or(r.Wave, "-"), r.Reason, r.Age, r.Message,
		})
	}
	p.Table(out, 1, head, lines)
}

// One is a ManagedClusterModule with its clusters.
type One struct {
	Row
	// Namespace of its Modules, on each cluster.
	Namespace  string             `json:"spokeNamespace"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Of         []Cluster          `json:"ofClusters,omitempty"`
	// Unnamed clusters are more than a status names.
	Unnamed int `json:"unnamed,omitempty"`
}

// Cluster is how one cluster stands.
type Cluster struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Loaded  int    `json:"loaded"`
	Desired int    `json:"desired"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	Next    string `json:"nextStep,omitempty"`
}

// OneOf is a ManagedClusterModule and its clusters as its status has them.
func OneOf(m *hubv1beta1.ManagedClusterModule, now time.Time) One {
	one := One{Row: RowOf(m, now), Namespace: m.Spec.SpokeNamespace, Conditions: m.Status.Conditions}
	for _, c := range m.Status.Clusters {
		row := Cluster{Name: c.Name, State: State(c.Ready, c.Reason), Loaded: int(c.AvailableNumber), Desired: int(c.DesiredNumber),
			Reason: c.Reason, Message: c.Message}
		if row.State == Ready {
			row.Reason = v1beta1.ReasonReady
		} else {
			row.Next = next(c.Reason)
		}
		one.Of = append(one.Of, row)
	}
	one.Unnamed = max(0, one.Clusters-len(one.Of))
	return one
}

// Render writes a line for each cluster.
func (o *One) Render(out io.Writer, p paint.Painter, wide bool) {
	o.answer(out, p)
	if o.State != Ready {
		_, _ = fmt.Fprintf(out, "Next step: %s\nWhy: drover explain %s\n", o.Next, o.Name)
	}
	if len(o.Of) == 0 {
		return
	}
	_, _ = fmt.Fprintln(out)
	head := []string{"CLUSTER", "STATE", "LOADED", "REASON", "MESSAGE"}
	if !wide {
		head = head[:4]
	}
	var lines [][]string
	for _, c := range o.Of {
		lines = append(lines, []string{c.Name, c.State, of(c.Loaded, c.Desired), c.Reason, cmp.Or(c.Message, "-")})
	}
	p.Table(out, 1, head, lines)
	if o.Unnamed > 0 {
		_, _ = fmt.Fprintf(out, "… and %d more, none of them worse\n", o.Unnamed)
	}
}

func (o *One) answer(out io.Writer, p paint.Painter) {
	text := fmt.Sprintf("ManagedClusterModule %s: %s, Ready on %d of %d clusters", o.Name, o.Reason, o.ReadyClusters, o.Clusters)
	if o.Wave != "" {
		text += ", in wave " + o.Wave
	}
	_, _ = fmt.Fprintln(out, p.Strong(text+"."))
}

// steps are the conditions on the way to a cluster's nodes, with the question that each answers.
var steps = []struct{ condition, question string }{
	{v1beta1.ConditionImagesAvailable, "Are the images made?"},
	{"Applied", "Have the clusters taken the Module?"},
	{v1beta1.ConditionReady, "Do they say that it is loaded?"},
}

// Explain shows the way from the hub to the clusters' nodes, and where to ask further.
func (o *One) Explain(out io.Writer, p paint.Painter) {
	o.answer(out, p)
	for _, step := range steps {
		c := meta.FindStatusCondition(o.Conditions, step.condition)
		if c == nil {
			continue
		}
		answer := p.Good("yes")
		if c.Status != metav1.ConditionTrue {
			answer = p.Bad("no") + "  " + c.Reason
		}
		_, _ = fmt.Fprintf(out, "  %-38s %s  %s\n", step.question, answer, p.Faint(c.Message))
	}
	shown := map[string]bool{}
	for _, c := range o.Of {
		if c.State == Ready || shown[c.Reason] {
			continue
		}
		shown[c.Reason] = true
		same := slices.DeleteFunc(slices.Clone(o.Of), func(other Cluster) bool { return other.State == Ready || other.Reason != c.Reason })
		names := make([]string, 0, len(same))
		for _, s := range same[:min(len(same), 5)] {
			names = append(names, s.Name)
		}
		if more := len(same) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		_, _ = fmt.Fprintf(out, "\n%s  %s\n", p.Bad(c.Reason), strings.Join(names, ", "))
		if c.Message != "" {
			_, _ = fmt.Fprintf(out, "  %s says: %s\n", c.Name, c.Message)
		}
		_, _ = fmt.Fprintf(out, "  Next step: %s\n  On the cluster: drover explain %s -n %s --context %s\n", c.Next, o.Name, o.Namespace, c.Name)
	}
}

func of(a, b int) string { return fmt.Sprintf("%d/%d", a, b) }
