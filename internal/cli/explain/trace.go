// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

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

// Step is one step from the Module to the node's kernel.
type Step struct {
	Name   string `json:"step"`
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Trace is the state of the Module on one node.
type Trace struct {
	Module string `json:"module"`
	Node   string `json:"node"`
	// Answer in one sentence.
	Answer string `json:"answer"`
	Next   string `json:"nextStep,omitempty"`
	// State of the whole, and its reason if it is not ok.
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	Steps  []Step `json:"steps"`
}

// Steps that no reason is about.
const (
	stepRepairs = "repairs"
	stepRetry   = "next try"
)

type subject struct {
	scene      *facts.Scene
	about      *status.Module
	node       *corev1.Node
	known      status.Node
	entry      status.Entry
	wants      desired.Answer
	carrier    *corev1.Pod
	podsSeen   bool         // false when the user may not see carriers
	agents     []corev1.Pod // the pods of the node's agent, if somebody asked
	agentsSeen bool
	now        time.Time
}

func trace(view *cluster.View, m *v1beta1.Module, node *corev1.Node, now time.Time) Trace {
	scene, about := view.Scene(m), facts.Of(m)
	s := &subject{
		scene: scene, about: &about, node: node, entry: scene.Entry(node.Name), carrier: view.Carrier(m, node.Name), podsSeen: view.PodsSeen,
		agents: view.Agents, agentsSeen: view.AgentsSeen, now: now,
	}
	var concerned bool
	s.known, concerned = scene.Node(node)
	s.wants = scene.Wants(node)
	t := Trace{Module: m.Namespace + "/" + m.Name, Node: node.Name}
	problem, open := status.Why(&about, &s.known)
	switch {
	case !concerned:
		t.Steps = []Step{s.selected(), s.tolerated()}
		t.State = No
		for _, step := range t.Steps {
			if step.State == No {
				t.Answer = fmt.Sprintf("Module %s is not for node %s: %s.", t.Module, t.Node, step.Text)
				break
			}
		}
		return t
	case about.Deleting || !about.Loads || !s.known.Wanted:
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
	t.close()
	t.State, t.Reason = t.worst(), problem.Reason
	t.Answer, t.Next = s.answer(t.Module, problem), Next(problem.Reason, m, node.Name)
	if step := t.Steps[slices.IndexFunc(t.Steps,
		func(s Step) bool { return s.Name == reasons.StepOrdered })]; reasons.OnItsWay(problem.Reason) && step.State == Failed {
		t.Next = Next(step.Reason, m, node.Name) // patience alone will not do
	}
	return t
}

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
		steps = append(steps, Step{Name: reasons.StepHolders, State: Waiting})
	}
	steps = append(steps, s.trusted(), s.loaded(), s.readyLabel())
	if s.about.HasPlugin || s.about.HasDRA {
		steps = append(steps, s.plugin())
	}
	return s.retry(s.repairs(steps))
}

func (s *subject) leaving() []Step {
	steps := []Step{s.selected(), s.allowed(), s.nodeReady(), s.ordered(),
		{Name: reasons.StepHolders, State: Waiting, Text: "no user of the module is known"}, s.loaded()}
	return s.retry(steps)
}

// mark puts the reason of the Module's condition into the trace, at the step that it is about.
func (t *Trace) mark(p reasons.Problem) {
	if reasons.OnItsWay(p.Reason) && p.Message == "" {
		return
	}
	name := cmp.Or(reasons.Step(p.Reason), reasons.StepLoaded)
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Name != name {
			continue
		}
		s.State, s.Reason = stateOf(p.Reason), p.Reason
		if p.Message != "" {
			s.Text = p.Message
		}
		return
	}
	t.Steps = append(t.Steps, Step{Name: name, State: stateOf(p.Reason), Reason: p.Reason, Text: p.Message})
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

func (t *Trace) worst() State {
	if slices.ContainsFunc(t.Steps, func(s Step) bool { return s.State == Failed }) {
		return Failed
	}
	return Waiting
}

// Next is the next step of a reason, with the names filled in; node may be empty.
func Next(reason string, m *v1beta1.Module, node string) string {
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
			t.State, t.Reason, t.Next = Waiting, step.Reason, Next(step.Reason, s.scene.Module, t.Node)
			t.Answer = fmt.Sprintf("Module %s is live on node %s, but its plugin is not ready there: %s.", t.Module, t.Node, step.Reason)
		}
	}
}

func (s *subject) answer(module string, p reasons.Problem) string {
	switch {
	case s.about.Deleting || !s.about.Loads || !s.known.Wanted:
		return fmt.Sprintf("Module %s is still to be taken from node %s: %s.", module, s.node.Name, p.Reason)
	case s.known.Live:
		return fmt.Sprintf("Module %s is live on node %s, but not as the Module now asks: %s.", module, s.node.Name, p.Reason)
	}
	return fmt.Sprintf("Module %s is not live on node %s: %s.", module, s.node.Name, p.Reason)
}

func (s *subject) selected() Step {
	m, node := s.scene.Module, s.node
	for key, value := range m.Spec.Selector {
		if have, ok := node.Labels[key]; !ok {
			return Step{Name: reasons.StepSelected, State: No,
				Text: fmt.Sprintf("the selector wants the label %s=%s, which the node does not have", key, value)}
		} else if have != value {
			return Step{Name: reasons.StepSelected, State: No,
				Text: fmt.Sprintf("the selector wants the label %s=%s, the node has %s=%s", key, value, key, have)}
		}
	}
	if why := placement.Unsupported(node); why != "" {
		return Step{Name: reasons.StepSelected, State: No, Reason: v1beta1.ReasonUnsupportedNode, Text: "the node " + why +
			", so no agent can run there"}
	}
	if len(m.Spec.Selector) == 0 {
		return Step{Name: reasons.StepSelected, State: OK, Text: "the selector is empty and chooses every Linux node"}
	}
	return Step{Name: reasons.StepSelected, State: OK, Text: "the selector chooses the node (" + labels(m.Spec.Selector) + ")"}
}

func (s *subject) tolerated() Step {
	taint := placement.Untolerated(placement.Tolerations(s.scene.Module), s.node)
	switch {
	case taint == nil && len(s.node.Spec.Taints) == 0:
		return Step{Name: reasons.StepTolerated, State: OK, Text: "the node has no taint"}
	case taint == nil:
		return Step{Name: reasons.StepTolerated, State: OK, Text: "the Module tolerates the node's taints"}
	case s.entry.Pending():
		return Step{Name: reasons.StepTolerated, State: OK, Text: "the taint " + taint.ToString() + " came later, and taints never unload"}
	}
	return Step{Name: reasons.StepTolerated, State: No, Text: "the Module does not tolerate the taint " + taint.ToString() +
		"; add it to spec.tolerations to load there"}
}
