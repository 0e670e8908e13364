// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/status"
	"github.com/drover-project/drover/internal/shared/words"
)

// Fleet is how the Module stands on all nodes, by cause.
type Fleet struct {
	Module string `json:"module"`
	verdict
	// Causes, the worst first.
	Causes []Cause `json:"causes,omitempty"`
	// Fine are the nodes where it is live as the Module asks for it.
	Fine    []string          `json:"fine,omitempty"`
	Missing []cluster.Missing `json:"missing,omitempty"` // what the user may not see
}

// Cause is what some nodes have in common.
type Cause struct {
	State   State    `json:"state"`
	Reason  string   `json:"reason,omitempty"`
	Message string   `json:"message,omitempty"`
	Next    string   `json:"nextStep,omitempty"`
	Nodes   []string `json:"nodes,omitempty"`
}

func causeOf(m *v1beta1.Module, reason, message string, nodes ...string) Cause {
	return Cause{State: stateOf(reason), Reason: reason, Message: message, Next: next(reason, m, ""), Nodes: nodes}
}

// blame takes the verdict, but for its answer, from a cause.
func (v *verdict) blame(c Cause) { v.State, v.Reason, v.Next = c.State, c.Reason, c.Next }

func fleet(view *cluster.View, m *v1beta1.Module) Fleet {
	about := view.About(m)
	cohorts, fine := status.Cohorts(about)
	f := Fleet{Module: m.Namespace + "/" + m.Name, verdict: verdict{State: OK}, Fine: fine, Missing: view.Missing}
	for _, c := range cohorts {
		p := overruled(m, c.Problem)
		if p.Reason == v1beta1.ReasonNoKernelMapping && p.Message == "" {
			p.Message = "no mapping matches: " + kernels(about, c.Nodes)
		}
		f.Causes = append(f.Causes, causeOf(m, p.Reason, p.Message, c.Nodes...))
	}
	f.judge(m, about)
	f.Causes = append(f.Causes, outside(m, view.Nodes, about)...)
	return f
}

// judge gives the answer. The conditions show what nodes do not: plugins, and an empty selection.
func (f *Fleet) judge(m *v1beta1.Module, about *status.Module) {
	total := len(f.Fine)
	for _, c := range f.Causes {
		total += len(c.Nodes)
	}
	live := fmt.Sprintf("Module %s is live on %d of %s", f.Module, len(f.Fine), words.Count(total, "node"))
	if len(f.Causes) > 0 {
		worst := f.Causes[0]
		f.blame(worst)
		where := words.Count(len(worst.Nodes), "node")
		f.Answer = fmt.Sprintf("%s; %s on %s.", live, worst.Reason, where)
		if about.Deleting {
			f.Answer = fmt.Sprintf("Module %s is being deleted and must still leave %s: %s on %s.", f.Module, words.Count(total, "node"),
				worst.Reason, where)
		}
		return
	}
	f.Answer = live + "."
	computed := status.Compute(about).Conditions
	for _, kind := range []string{v1beta1.ConditionLoaded, v1beta1.ConditionDevicesReady} {
		c := meta.FindStatusCondition(computed, kind)
		// The operator's status has what only the operator knows.
		if written := meta.FindStatusCondition(m.Status.Conditions, kind); written != nil && c != nil && c.Status != metav1.ConditionTrue {
			c = written
		}
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		f.Answer = fmt.Sprintf("%s; %s.", live, c.Reason)
		if total == 0 {
			f.Answer = fmt.Sprintf("Module %s is on no node: %s.", f.Module, c.Reason)
		}
		cause := causeOf(m, c.Reason, c.Message)
		f.blame(cause)
		f.Causes = append(f.Causes, cause)
		return
	}
}

func kernels(about *status.Module, nodes []string) string {
	var found []string
	for i := range about.Nodes {
		if n := &about.Nodes[i]; slices.Contains(nodes, n.Name) {
			found = append(found, n.Kernel)
		}
	}
	slices.Sort(found)
	return words.List(slices.Compact(found), mostNamed)
}

// outside are selected nodes that the Module leaves alone.
func outside(m *v1beta1.Module, nodes []corev1.Node, about *status.Module) []Cause {
	c := Cause{State: No}
	for i := range nodes {
		n := &nodes[i]
		taint := placement.Untolerated(placement.Tolerations(m), n)
		known := slices.ContainsFunc(about.Nodes, func(known status.Node) bool {
			return known.Name == n.Name && (known.Wanted || known.Pending)
		})
		if taint == nil || known || !placement.Eligible(m, n) {
			continue
		}
		c.Message = cmp.Or(c.Message,
			"skipped: the Module does not tolerate the taint "+taint.ToString()+"; add it to spec.tolerations to load there, too")
		c.Nodes = append(c.Nodes, n.Name)
	}
	if len(c.Nodes) == 0 {
		return nil
	}
	return []Cause{c}
}

// blind is what the Module's own status says, for a user who may see nothing else.
func blind(m *v1beta1.Module, missing []cluster.Missing) Fleet {
	f := Fleet{Module: m.Namespace + "/" + m.Name, verdict: verdict{State: Waiting}, Missing: missing}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	n := m.Status.ModuleLoader
	live := fmt.Sprintf("live on %d of %s", n.AvailableNumber, words.Count(int(n.DesiredNumber), "node"))
	switch {
	case c == nil || m.Status.ObservedGeneration != m.Generation:
		f.Answer = fmt.Sprintf("The operator has not processed Module %s yet: is drover-operator running?", f.Module)
	case c.Status == metav1.ConditionTrue:
		f.State, f.Answer = OK, fmt.Sprintf("Module %s is ready: %s.", f.Module, live)
	default:
		f.Causes = []Cause{causeOf(m, c.Reason, c.Message)}
		f.blame(f.Causes[0])
		f.Answer = fmt.Sprintf("Module %s is %s: %s.", f.Module, live, c.Reason)
	}
	return f
}
