// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/paint"
)

// Clock is whose time a moment is in.
type Clock string

const (
	// ClockServer is the API server's: it stamps creations and writes.
	ClockServer Clock = "API server"
	// ClockNode is the node's: its kubelet and Drover's agent stamp what they see.
	ClockNode Clock = "node"
)

// Phases, in their order.
const (
	phaseRegistered = "registered"
	phaseWanted     = "Module created"
	phaseBack       = "node ready"
	phaseOrdered    = "ordered"
	phaseDelivered  = "delivered"
	phaseLoaded     = "loaded"
	phasePlaced     = "plugin pod"
	phaseDevices    = "devices"
	phasePlugin     = "plugin"
	phaseReady      = "ready"
)

const (
	// orderOwner begins the name by which the operator writes one Module's order.
	orderOwner = "drover/"
	// waitContainer is the init container of a plugin's pod that waits for the devices.
	waitContainer = "wait-for-kernel-module"
)

// moment is when a phase ended, as an object says. Its time is zero if none does.
type moment struct {
	phase string
	at    time.Time
	clock Clock
}

// Phase is what ended at a time, and how long it took since the phase before.
type Phase struct {
	Phase string    `json:"phase"`
	At    time.Time `json:"at"`
	Clock Clock     `json:"clock"`
	// Seconds since the phase before it; the phases sum to the whole.
	Seconds float64 `json:"seconds"`
	// TwoClocks: the phase before has another clock, so that Seconds is as wrong as the two differ.
	TwoClocks bool `json:"twoClocks,omitempty"`
	// Skewed: At is earlier than the phase before it, so the clocks do differ. Seconds is 0.
	Skewed bool `json:"skewed,omitempty"`
}

// Timeline is how a Module came to a node, as far as objects still say.
type Timeline struct {
	Phases []Phase `json:"phases"`
	// Seconds is the whole.
	Seconds float64 `json:"seconds"`
	// TwoClocks: the first and the last phase have different clocks.
	TwoClocks bool `json:"twoClocks,omitempty"`
	// Next is the phase that has not ended; "" if all have.
	Next string `json:"next,omitempty"`
}

// timelineOf puts moments into their order. Those without a time are left out; the first of them
// that must come is what is waited for. A moment before the one before it took no time.
func timelineOf(moments []moment, open []string) *Timeline {
	t := &Timeline{}
	var latest time.Time
	for _, m := range moments {
		if m.at.IsZero() {
			if t.Next == "" && slices.Contains(open, m.phase) {
				t.Next = m.phase
			}
			continue
		}
		p := Phase{Phase: m.phase, At: m.at.UTC(), Clock: m.clock}
		if n := len(t.Phases); n > 0 {
			p.TwoClocks, p.Skewed = t.Phases[n-1].Clock != m.clock, m.at.Before(latest)
			if !p.Skewed {
				p.Seconds = m.at.Sub(latest).Seconds()
			}
		}
		if m.at.After(latest) {
			latest = m.at
		}
		t.Seconds += p.Seconds
		t.Phases = append(t.Phases, p)
	}
	if n := len(t.Phases); n > 0 {
		t.TwoClocks = t.Phases[0].Clock != t.Phases[n-1].Clock
	}
	return t
}

// timeline reads the moments from a node's objects. It starts when the node and the Module were
// both there or, if the order is older than that, when the node came back.
func (s *subject) timeline() *Timeline {
	m := s.scene.Module
	start := moment{phaseRegistered, s.node.CreationTimestamp.Time, ClockServer}
	if m.CreationTimestamp.After(start.at) {
		start = moment{phaseWanted, m.CreationTimestamp.Time, ClockServer}
	}
	ordered := moment{phaseOrdered, s.orderTime(), ClockServer}
	var delivered, loaded moment
	delivered.phase, loaded.phase = phaseDelivered, phaseLoaded
	if live := s.entry.Live; live != nil && s.known.Live {
		loaded.at, loaded.clock = live.LastTransitionTime.Time, ClockNode
		if live.Observed != nil && live.Observed.LoadBegan != nil {
			delivered.at, delivered.clock = live.Observed.LoadBegan.Time, ClockNode
		}
	}
	if back := readySince(s.node); !ordered.at.IsZero() && back.After(ordered.at) && !loaded.at.IsZero() && back.Before(loaded.at) {
		// The order stood already: the node has booted since.
		start, ordered = moment{phaseBack, back, ClockNode}, moment{phase: phaseOrdered}
	}
	if !loaded.at.IsZero() && ordered.at.After(loaded.at) {
		ordered.at = time.Time{} // it changed again, later
	}
	moments, open := []moment{start, ordered, delivered, loaded}, []string{phaseOrdered, phaseDelivered, phaseLoaded}
	if !loaded.at.IsZero() {
		open = nil // what is not known of before does not matter
	}
	if s.about.HasPlugin || s.about.HasDRA {
		moments, open = append(moments, s.pluginMoments()...), append(open, phasePlaced, phaseDevices, phasePlugin, phaseReady)
	}
	return timelineOf(moments, open)
}

// orderTime is when the operator last changed what the Module asks of the node.
func (s *subject) orderTime() time.Time {
	config := s.view.Configs[s.node.Name]
	if config == nil || s.entry.Order == nil {
		return time.Time{}
	}
	owner := orderOwner + s.scene.Module.Namespace + "/" + s.scene.Module.Name
	for _, f := range config.ManagedFields {
		if f.Manager == owner && f.Subresource == "" && f.Time != nil {
			return f.Time.Time
		}
	}
	return time.Time{}
}

// readySince is when the kubelet last became ready.
func readySince(node *corev1.Node) time.Time {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// pluginMoments are those of the newest pod of the Module's plugin on the node.
func (s *subject) pluginMoments() []moment {
	placed, devices := moment{phase: phasePlaced, clock: ClockServer}, moment{phase: phaseDevices, clock: ClockNode}
	plugin, ready := moment{phase: phasePlugin, clock: ClockNode}, moment{phase: phaseReady, clock: ClockNode}
	if pod := s.pluginPod(); pod != nil {
		placed.at = pod.CreationTimestamp.Time
		for i := range pod.Status.InitContainerStatuses {
			if c := &pod.Status.InitContainerStatuses[i]; c.Name == waitContainer && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 {
				devices.at = c.State.Terminated.FinishedAt.Time
			}
		}
		for i := range pod.Status.ContainerStatuses {
			if running := pod.Status.ContainerStatuses[i].State.Running; running != nil {
				plugin.at = running.StartedAt.Time
			}
		}
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready.at = c.LastTransitionTime.Time
			}
		}
	}
	return []moment{placed, devices, plugin, ready}
}

func (s *subject) pluginPod() *corev1.Pod {
	var newest *corev1.Pod
	for i := range s.view.Pods {
		pod := &s.view.Pods[i]
		mine := pod.Namespace == s.scene.Module.Namespace && pod.Labels[v1beta1.ModuleNameLabel] == s.scene.Module.Name
		if !mine || pod.Labels[v1beta1.RoleLabel] == "" || pod.Spec.NodeName != s.node.Name || pod.DeletionTimestamp != nil {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp) {
			newest = pod
		}
	}
	return newest
}

// render is a table, with what the times are worth.
func (t *Timeline) render(p paint.Painter) string {
	var b strings.Builder
	seconds := func(s float64) string { return duration.HumanDuration(time.Duration(s * float64(time.Second))) }
	fmt.Fprintf(&b, "\nTimeline, in all %s\n", p.Strong(seconds(t.Seconds)))
	for i := range t.Phases {
		ph := &t.Phases[i]
		took := "+" + seconds(ph.Seconds)
		switch {
		case i == 0:
			took = ""
		case ph.Skewed:
			took += " (the clocks differ)"
		case ph.TwoClocks:
			took += " (two clocks)"
		}
		line := fmt.Sprintf("  %s  %-10s  %-14s  %s", ph.At.Format(time.RFC3339), ph.Clock, ph.Phase, took)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if t.Next != "" {
		fmt.Fprintf(&b, "  not yet: %s\n", t.Next)
	}
	return b.String()
}
