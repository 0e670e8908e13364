// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
)

// State of one step of a trace.
type State string

// States of steps.
const (
	OK      State = "ok"
	Waiting State = "waiting"
	Failed  State = "failed"
	// Open: an earlier step is not done.
	Open State = "open"
	// Unknown: the user may not see it.
	Unknown State = "unknown"
	// No: the Module does not belong there.
	No State = "no"
)

// settled reports whether there is nothing to wait for and nothing to do.
func (s State) settled() bool { return s != Waiting && s != Failed }

// Step is one step from the Module to the node's kernel.
type Step struct {
	Name   string `json:"step"`
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}

func (s State) step(name, text string) Step { return Step{Name: name, State: s, Text: text} }

func (s Step) because(reason string) Step {
	s.Reason = reason
	return s
}

// Trace is the state of the Module on one node.
type Trace struct {
	Module string `json:"module"`
	Node   string `json:"node"`
	verdict
	Steps []Step `json:"steps"`
	// Timeline is there when it was asked for.
	Timeline *Timeline `json:"timeline,omitempty"`
}

type verdict struct {
	// Answer in one sentence.
	Answer string `json:"answer"`
	Next   string `json:"nextStep,omitempty"`
	// State of the whole, and its reason if it is not ok.
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Steps that no reason is about.
const (
	stepRepairs = "repairs"
	stepRetry   = "next try"
)

type subject struct {
	view  *cluster.View
	scene *facts.Scene
	about status.Module
	node  *corev1.Node
	known status.Node
	// concerned: the Module is wanted on the node, or something of it is there.
	concerned bool
	entry     status.Entry
	wants     desired.Answer
}

func subjectOf(view *cluster.View, m *v1beta1.Module, node *corev1.Node) *subject {
	scene := view.Scene(m)
	s := &subject{view: view, scene: scene, about: facts.Of(m), node: node, entry: scene.Entry(node.Name), wants: scene.Wants(node)}
	s.known, s.concerned = scene.Node(node)
	return s
}

// waits reports whether the node has not been ordered what the Module asks for.
func (s *subject) waits() bool {
	order := s.entry.Order
	return s.concerned && !s.leaves() && s.wants.State != nil &&
		(order == nil || order.Delivery != nil && order.Delivery.ID != s.wants.State.Delivery)
}

// seeRollout finds out whether the node waits for its turn, which depends on all nodes.
func (s *subject) seeRollout(all *cluster.View) {
	if all.Whole() {
		s.about.Rollout = all.Scene(s.scene.Module).Rollout(all.Fleet(), all.Now)
	}
}

func (s *subject) trace() Trace {
	m, node := s.scene.Module, s.node
	t := Trace{Module: m.Namespace + "/" + m.Name, Node: node.Name}
	problem, open := status.Why(&s.about, &s.known)
	switch {
	case !s.concerned, !s.known.Wanted && !s.known.Pending:
		t.Steps, t.State = []Step{s.selected(), s.tolerated()}, No
		if i := slices.IndexFunc(t.Steps, func(s Step) bool { return s.State == No }); i >= 0 {
			t.Answer = fmt.Sprintf("Module %s is not for node %s: %s.", t.Module, t.Node, t.Steps[i].Text)
		}
		return t
	case s.leaves():
		t.Steps = s.leaving()
	default:
		t.Steps = s.coming()
	}
	if !open {
		s.fine(&t)
		return t
	}
	problem = overruled(m, problem)
	t.mark(problem)
	if problem.Reason == v1beta1.ReasonRollingOut && s.about.Rollout.Halt != "" {
		problem.Reason = v1beta1.ReasonRolloutPaused
	}
	t.close()
	t.State, t.Reason = Waiting, problem.Reason
	if slices.ContainsFunc(t.Steps, func(s Step) bool { return s.State == Failed }) {
		t.State = Failed
	}
	t.Answer, t.Next = s.answer(t.Module, problem), next(problem.Reason, m, node.Name)
	for _, step := range t.Steps {
		if step.Name == reasons.StepOrdered && step.State == Failed && reasons.OnItsWay(problem.Reason) {
			t.Next = next(step.Reason, m, node.Name) // patience alone will not do
		}
	}
	return t
}

// leaves reports whether the kernel module should leave the node.
func (s *subject) leaves() bool { return s.about.Deleting || !s.about.Loads || !s.known.Wanted }

// overruled replaces mere patience by what keeps the operator from writing, as the status says.
func overruled(m *v1beta1.Module, p reasons.Problem) reasons.Problem {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || !reasons.OnItsWay(p.Reason) || c.Reason != v1beta1.ReasonPeerActive && c.Reason != v1beta1.ReasonCRDIncompatible {
		return p
	}
	return reasons.Problem{Reason: c.Reason, Message: c.Message}
}

func (s *subject) coming() []Step {
	steps := []Step{s.selected(), s.tolerated(), s.mapping(), s.image(), s.allowed(), s.nodeReady(), s.ordered(), s.delivered(), s.checks()}
	if a := s.entry.Attempt; a != nil && reasons.Step(a.Reason) == reasons.StepHolders {
		steps = append(steps, Waiting.step(reasons.StepHolders, ""))
	}
	steps = append(steps, s.trusted(), s.loaded(), s.readyLabel())
	if s.about.HasPlugin || s.about.HasDRA {
		steps = append(steps, s.plugin())
	}
	return s.retry(s.repairs(steps))
}

func (s *subject) leaving() []Step {
	holders := Waiting.step(reasons.StepHolders, "no user of the module is known")
	steps := []Step{s.selected(), s.allowed(), s.nodeReady(), s.ordered(), holders, s.loaded()}
	if s.known.Tainted != "" {
		steps = slices.Insert(steps, 1, s.tolerated())
	}
	return s.retry(steps)
}

// mark puts the reason of the Module's condition into the trace, at the step that it is about.
func (t *Trace) mark(p reasons.Problem) {
	if reasons.OnItsWay(p.Reason) && p.Message == "" {
		return
	}
	step := stateOf(p.Reason).step(cmp.Or(reasons.Step(p.Reason), reasons.StepLoaded), p.Message).because(p.Reason)
	i := slices.IndexFunc(t.Steps, func(s Step) bool { return s.Name == step.Name })
	if i < 0 {
		t.Steps = append(t.Steps, step)
		return
	}
	step.Text = cmp.Or(step.Text, t.Steps[i].Text)
	t.Steps[i] = step
}

func stateOf(reason string) State {
	if reasons.Patience(reason) {
		return Waiting
	}
	return Failed
}

// close turns what waits behind an unfinished step into open steps.
func (t *Trace) close() {
	before := true
	for i := range t.Steps {
		s := &t.Steps[i]
		if !before && s.State == Waiting && s.Reason == "" && s.Name != stepRetry {
			s.State = Open
			if s.Name != reasons.StepLoaded {
				s.Text = ""
			}
		}
		before = before && (s.State == OK || s.State == Unknown)
	}
}

// next is the next step of a reason, with the names filled in; node may be empty.
func next(reason string, m *v1beta1.Module, node string) string {
	return strings.ReplaceAll(reasons.Next(reason), "drover retry MODULE [NODE]", command("retry", m, node))
}

func command(verb string, m *v1beta1.Module, node string) string {
	text := "drover " + verb + " " + m.Name
	if node != "" {
		text += " " + node
	}
	return text + " -n " + m.Namespace
}

func (s *subject) fine(t *Trace) {
	t.State, t.Answer = OK, fmt.Sprintf("Module %s is live on node %s.", t.Module, t.Node)
	if s.about.Deleting || !s.about.Loads {
		t.Answer = fmt.Sprintf("Nothing of Module %s is on node %s.", t.Module, t.Node)
	}
	for _, step := range t.Steps {
		if step.Name == reasons.StepPlugin && step.State == Waiting {
			t.State, t.Reason, t.Next = Waiting, step.Reason, next(step.Reason, s.scene.Module, t.Node)
			t.Answer = fmt.Sprintf("Module %s is live on node %s, but its plugin is not ready there: %s.", t.Module, t.Node, step.Reason)
		}
	}
}

func (s *subject) answer(module string, p reasons.Problem) string {
	switch {
	case s.leaves():
		return fmt.Sprintf("Module %s is still to be taken from node %s: %s.", module, s.node.Name, p.Reason)
	case s.known.Live:
		return fmt.Sprintf("Module %s is live on node %s, but not as the Module now asks: %s.", module, s.node.Name, p.Reason)
	}
	return fmt.Sprintf("Module %s is not live on node %s: %s.", module, s.node.Name, p.Reason)
}

func (s *subject) selected() Step {
	m, node := s.scene.Module, s.node
	for _, key := range slices.Sorted(maps.Keys(m.Spec.Selector)) {
		value := m.Spec.Selector[key]
		if have, ok := node.Labels[key]; !ok {
			return No.step(reasons.StepSelected, fmt.Sprintf("the selector wants the label %s=%s, which the node does not have", key, value))
		} else if have != value {
			return No.step(reasons.StepSelected, fmt.Sprintf("the selector wants the label %s=%s, the node has %s=%s", key, value, key, have))
		}
	}
	if why := placement.Unsupported(node); why != "" {
		return No.step(reasons.StepSelected, "the node "+why+", so no agent can run there").because(v1beta1.ReasonUnsupportedNode)
	}
	if len(m.Spec.Selector) == 0 {
		return OK.step(reasons.StepSelected, "the selector is empty and chooses every Linux node")
	}
	return OK.step(reasons.StepSelected, "the selector chooses the node ("+labels.Set(m.Spec.Selector).String()+")")
}

func (s *subject) tolerated() Step {
	taint := placement.Untolerated(placement.Tolerations(s.scene.Module), s.node)
	switch {
	case taint == nil && len(s.node.Spec.Taints) == 0:
		return OK.step(reasons.StepTolerated, "the node has no taint")
	case taint == nil:
		return OK.step(reasons.StepTolerated, "the Module tolerates the node's taints")
	case s.known.Tainted != "" && s.entry.Pending():
		return OK.step(reasons.StepTolerated, "the taint "+s.known.Tainted+" asks for the unload")
	case s.entry.Pending():
		return OK.step(reasons.StepTolerated, "the taint "+taint.ToString()+
			" came later: only those that the operator's --unload-taints lists unload")
	}
	return No.step(reasons.StepTolerated, "the Module does not tolerate the taint "+taint.ToString()+
		"; add it to spec.tolerations to load there, or remove the taint")
}
