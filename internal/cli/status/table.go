// SPDX-License-Identifier: Apache-2.0

package status

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
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/managed"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
	"github.com/drover-project/drover/internal/shared/words"
)

// States of Modules and nodes.
const (
	ready   = paint.Ready
	waiting = paint.Waiting
	failed  = paint.Failed
)

// Fleet is what is shown of all Modules.
type Fleet struct {
	Modules []Row             `json:"modules"`
	Managed []managed.Row     `json:"managedClusterModules,omitempty"`
	Missing []cluster.Missing `json:"missing,omitempty"`
}

// Row is one Module.
type Row struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Loaded    int    `json:"loaded"`
	Desired   int    `json:"desired"`
	// Failing counts nodes that need attention; nil: the user may not see nodes.
	Failing *int   `json:"failing,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	Next    string `json:"nextStep,omitempty"`
	Plugin  string `json:"plugin,omitempty"`
	Age     string `json:"age"`
}

// row takes the Module's own status, and counts failing nodes if the user may see them.
func row(m *v1beta1.Module, view *cluster.View) Row {
	n := m.Status.ModuleLoader
	r := Row{
		Namespace: m.Namespace, Name: m.Name, Loaded: int(n.AvailableNumber), Desired: int(n.DesiredNumber),
		Age: duration.HumanDuration(view.Now.Sub(m.CreationTimestamp.Time)),
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); c == nil || c.ObservedGeneration != m.Generation {
		r.State, r.Reason = waiting, "NotSeen"
		r.Message = "the operator has not processed this Module's newest version yet: is drover-operator running?"
	} else {
		r.State, r.Reason, r.Message = managed.State(c.Status == metav1.ConditionTrue, c.Reason), c.Reason, c.Message
		if r.State != ready {
			r.Next = reasons.Next(c.Reason)
		}
	}
	switch plugin, dra := m.Status.DevicePlugin, m.Status.DRA; {
	case m.Spec.DRA != nil:
		r.Plugin = fmt.Sprintf("%d/%d", dra.AvailableNumber, dra.DesiredNumber)
	case m.Spec.DevicePlugin != nil:
		r.Plugin = fmt.Sprintf("%d/%d", plugin.AvailableNumber, plugin.DesiredNumber)
	}
	if view.Whole() {
		failing := 0
		cohorts, _ := status.Cohorts(view.About(m))
		for _, c := range cohorts {
			if !reasons.Patience(c.Reason) {
				failing += len(c.Nodes)
			}
		}
		r.Failing = &failing
	}
	return r
}

func (f *Fleet) state() string {
	worst := managed.Worst(f.Managed)
	for _, r := range f.Modules {
		if r.State == failed || r.State == waiting && worst == ready {
			worst = r.State
		}
	}
	return worst
}

func (f *Fleet) answer() string {
	count := map[string]int{}
	var worst *Row
	for i := range f.Modules {
		r := &f.Modules[i]
		count[r.State]++
		if worst == nil || urgency(r.State) < urgency(worst.State) {
			worst = r
		}
	}
	switch {
	case worst == nil:
		return "There are no Modules here."
	case worst.State == ready:
		return fmt.Sprintf("All well: %s ready.", words.Count(len(f.Modules), "Module"))
	}
	parts := []string{}
	for _, state := range []struct{ name, text string }{{failed, "failing"}, {waiting, "on the way"}, {ready, "ready"}} {
		if n := count[state.name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state.text))
		}
	}
	return fmt.Sprintf("%s: %s. Look at: drover explain %s -n %s", words.Count(len(f.Modules), "Module"), strings.Join(parts, ", "),
		worst.Name, worst.Namespace)
}

func urgency(state string) int { return slices.Index([]string{failed, waiting, ready}, state) }

func (f *Fleet) render(out io.Writer, p paint.Painter, wide bool) {
	if len(f.Modules) > 0 || len(f.Managed) == 0 {
		_, _ = fmt.Fprintln(out, p.Strong(f.answer()))
	}
	if len(f.Modules) > 0 {
		_, _ = fmt.Fprintln(out)
		head := []string{"NAMESPACE", "NAME", "STATE", "LOADED", "FAILING", "REASON", "AGE", "PLUGIN", "MESSAGE"}
		if !wide {
			head = head[:7]
		}
		var rows [][]string
		for _, r := range f.Modules {
			rows = append(rows, []string{
				r.Namespace, r.Name, r.State, fmt.Sprintf("%d/%d", r.Loaded, r.Desired), number(r.Failing), r.Reason, r.Age,
				cmp.Or(r.Plugin, "-"), strings.ReplaceAll(r.Message, "\n", " "),
			})
		}
		p.Table(out, 2, head, rows)
	}
	if len(f.Managed) > 0 {
		if len(f.Modules) > 0 {
			_, _ = fmt.Fprintln(out)
		}
		managed.Render(out, p, f.Managed, wide)
	}
	_, _ = fmt.Fprint(out, cluster.Tell(f.Missing))
}

// Nodes is what is shown of one Module's nodes.
type Nodes struct {
	Row
	Nodes   []NodeRow         `json:"nodes,omitempty"`
	Missing []cluster.Missing `json:"missing,omitempty"`
}

// NodeRow is one node.
type NodeRow struct {
	Node   string `json:"node"`
	Kernel string `json:"kernel"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	Build  string `json:"build,omitempty"`
	For    string `json:"for,omitempty"`
	Image  string `json:"image,omitempty"`
}

func nodes(m *v1beta1.Module, view *cluster.View) Nodes {
	all := Nodes{Row: row(m, view), Missing: view.Missing}
	if !view.Whole() {
		return all
	}
	scene, about := view.Scene(m), facts.Of(m)
	for i := range view.Nodes {
		if known, concerned := scene.Node(&view.Nodes[i]); concerned {
			all.Nodes = append(all.Nodes, nodeRow(&about, &known, scene.Entry(known.Name), view.Now))
		}
	}
	slices.SortFunc(all.Nodes, func(a, b NodeRow) int {
		return cmp.Or(cmp.Compare(urgency(a.State), urgency(b.State)), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Node, b.Node))
	})
	return all
}

func nodeRow(about *status.Module, known *status.Node, entry status.Entry, now time.Time) NodeRow {
	r := NodeRow{Node: known.Name, Kernel: known.Kernel, State: ready, Reason: v1beta1.ReasonLoaded}
	if p, open := status.Why(about, known); open {
		r.State, r.Reason = managed.State(false, p.Reason), p.Reason
	}
	if live := entry.Live; live != nil && known.Live {
		r.Image, r.For = ptr.Deref(live.Config, v1beta1.ModuleConfig{}).ContainerImage,
			duration.HumanDuration(now.Sub(live.LastTransitionTime.Time))
		if live.Observed != nil {
			r.Build = live.Observed.BuildID
		}
	}
	return r
}

func (n *Nodes) render(out io.Writer, p paint.Painter, wide bool) {
	_, _ = fmt.Fprintln(out, p.Strong(fmt.Sprintf("Module %s/%s: %s, live on %d of %s.", n.Namespace, n.Name, n.Reason, n.Loaded,
		words.Count(n.Desired, "node"))))
	if n.Next != "" {
		_, _ = fmt.Fprintf(out, "Next step: %s\nWhy: drover explain %s -n %s\n", n.Next, n.Name, n.Namespace)
	}
	if len(n.Nodes) > 0 {
		_, _ = fmt.Fprintln(out)
		head := []string{"NODE", "STATE", "REASON", "KERNEL", "BUILD", "FOR", "IMAGE"}
		if !wide {
			head = head[:6]
		}
		var rows [][]string
		for _, r := range n.Nodes {
			rows = append(rows, []string{
				r.Node, r.State, r.Reason, r.Kernel, cmp.Or(words.Short(r.Build), "-"), cmp.Or(r.For, "-"), cmp.Or(r.Image, "-"),
			})
		}
		p.Table(out, 1, head, rows)
	}
	_, _ = fmt.Fprint(out, cluster.Tell(n.Missing))
}

func number(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}
