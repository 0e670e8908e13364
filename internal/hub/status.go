// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/words"
)

// ConditionApplied of a ManagedClusterModule: all its clusters have the Module.
const ConditionApplied = "Applied"

const (
	// maxClusters is how many clusters a status lists, maxMessages how many of them with a message.
	maxClusters, maxMessages = 256, 10
)

// StatusOf sums up. From the status before, it takes only the times of unchanged conditions.
func StatusOf(m *hubv1beta1.ManagedClusterModule, d *Decision, now time.Time) *hubv1beta1.ManagedClusterModuleStatus {
	s := &hubv1beta1.ManagedClusterModuleStatus{ObservedGeneration: m.Generation, NumberDesired: int32(len(d.States)), Wave: d.Order.Wave}
	var bad, good []State
	images := 0
	for _, one := range d.States {
		s.ModuleLoader.DesiredNumber += one.Desired
		s.ModuleLoader.NodesMatchingSelectorNumber += one.Desired
		s.ModuleLoader.AvailableNumber += one.Available
		if one.Applied {
			s.NumberApplied++
		}
		if one.Refused {
			s.NumberDegraded++
		}
		if one.Missing {
			images++
		}
		if one.Ready {
			s.NumberReady++
			good = append(good, one)
		} else {
			bad = append(bad, one)
		}
	}
	slices.SortStableFunc(bad, worse)
	all := slices.Concat(bad, good)
	for i, one := range all[:min(len(all), maxClusters)] {
		c := hubv1beta1.ClusterStatus{Name: one.Name, Ready: one.Ready, DesiredNumber: one.Desired, AvailableNumber: one.Available}
		if !one.Ready {
			c.Reason = one.Reason
		}
		if !one.Ready && i < maxMessages {
			c.Message = one.Message
		}
		s.Clusters = append(s.Clusters, c)
	}
	for _, c := range []metav1.Condition{readyOf(m, s, d, bad), imagesOf(s, d, images), appliedOf(s, bad)} {
		c.ObservedGeneration, c.LastTransitionTime = m.Generation, metav1.NewTime(now.Truncate(time.Second))
		if before := meta.FindStatusCondition(m.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
		s.Conditions = append(s.Conditions, c)
	}
	return s
}

// Left is how a cluster stands that still has the Module of a ManagedClusterModule in deletion.
func Left(t *Target, reached bool) State {
	s := State{Name: t.Name, Reason: v1beta1.ReasonUnloading, Message: "the cluster is unloading the kernel module"}
	if !reached {
		s.Reason = v1beta1.ReasonAgentMissing
		s.Message = unreached(t) + "; it keeps the Module until the hub reaches it, or no longer knows it"
	}
	return s
}

// Keeps is how a cluster stands that refuses to delete the Module.
func Keeps(t *Target, err error) State {
	return State{Name: t.Name, Refused: true, Reason: v1beta1.ReasonDeliveryRefused, Message: "the cluster refuses to delete the Module: " +
		cut(err.Error())}
}

// Leaving sums up a ManagedClusterModule that is being deleted and waits for clusters.
func Leaving(m *hubv1beta1.ManagedClusterModule, left []State, now time.Time) *hubv1beta1.ManagedClusterModuleStatus {
	s := StatusOf(m, &Decision{States: left, Order: &Order{}}, now)
	slices.SortStableFunc(left, worse)
	ready := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionReady)
	ready.Message = fmt.Sprintf("is being deleted; waits for %s; cluster %s: %s", clusters(len(left)), left[0].Name, left[0].Message)
	if more := others(left); more != "" {
		ready.Message += "; " + more
	}
	return s
}

// worse orders clusters: what does not end by itself, then what has failed, then the rest.
func worse(a, b State) int { return cmp.Compare(rank(a), rank(b)) }

func rank(s State) int {
	switch {
	case reasons.Final(s.Reason):
		return 0
	case !reasons.Patience(s.Reason):
		return 1
	}
	return 2
}

func readyOf(m *hubv1beta1.ManagedClusterModule, s *hubv1beta1.ManagedClusterModuleStatus, d *Decision, bad []State) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case len(d.Mass) > 0:
		c.Reason, c.Message = v1beta1.ReasonMassDeselection, massOf(m.Name, d)
		return c
	case len(d.States) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonNoNodes, "no cluster is selected"
		if len(d.Absent) > 0 {
			c.Message += "; not installed on the hub: " + strings.Join(d.Absent, ", ")
		}
		return c
	case len(bad) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonReady, "ready on "+all(len(d.States))
		c.Message += kept(d)
		if len(d.Kept) > 0 && firstKept(d).Refused {
			c.Status, c.Reason = metav1.ConditionFalse, firstKept(d).Reason
		}
		return c
	}
	c.Reason = bad[0].Reason
	text := fmt.Sprintf("ready on %d of %d clusters; cluster %s: %s", s.NumberReady, s.NumberDesired, bad[0].Name,
		cmp.Or(bad[0].Message, bad[0].Reason))
	if more := others(bad); more != "" {
		text += "; " + more
	}
	o := d.Order
	switch {
	case o.Halt == rollout.HaltFailed:
		text += fmt.Sprintf("; stopped in wave %s (%d of %d) because %s failed, %s", o.Wave, o.Number, o.Of, strings.Join(some(o.Failed), ", "),
			wait(o.Waiting))
	case o.Halt == rollout.HaltPaused:
		text += "; paused, " + wait(o.Waiting)
	case o.Waiting > 0:
		text += fmt.Sprintf("; wave %s (%d of %d), %s", o.Wave, o.Number, o.Of, wait(o.Waiting))
	}
	c.Message = text + kept(d)
	return c
}

// kept names a cluster that has a Module and is not selected.
func kept(d *Decision) string {
	if len(d.Kept) == 0 {
		return ""
	}
	first := firstKept(d)
	text := fmt.Sprintf("; cluster %s is no longer selected: %s", first.Name, first.Message)
	if more := len(d.Kept) - 1; more > 0 {
		text += fmt.Sprintf("; %d more", more)
	}
	return text
}

// firstKept is the same each time: a refusal, if there is one.
func firstKept(d *Decision) State {
	return slices.MinFunc(d.Kept, func(a, b State) int {
		if a.Refused != b.Refused {
			return map[bool]int{true: -1, false: 1}[a.Refused]
		}
		return strings.Compare(a.Name, b.Name)
	})
}

func all(n int) string {
	if n == 1 {
		return "1 cluster"
	}
	return fmt.Sprintf("all %d clusters", n)
}

func clusters(n int) string { return words.Count(n, "cluster") }

func wait(n int) string {
	if n == 1 {
		return "1 cluster waits"
	}
	return fmt.Sprintf("%d clusters wait", n)
}

// others names the other clusters with the worst one's reason.
func others(bad []State) string {
	var names []string
	for _, one := range bad[1:] {
		if one.Reason == bad[0].Reason {
			names = append(names, one.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "also " + strings.Join(some(names), ", ")
}

const named = 5

func some(names []string) []string {
	if len(names) <= named {
		return names
	}
	return append(slices.Clone(names[:named]), fmt.Sprintf("%d more", len(names)-named))
}

func imagesOf(s *hubv1beta1.ManagedClusterModuleStatus, d *Decision, missing int) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionImagesAvailable, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonImagesAvailable,
		Message: "all clusters have their images"}
	if missing == 0 {
		return c
	}
	c.Status, c.Message = metav1.ConditionFalse, fmt.Sprintf("%d of %d clusters lack an image", missing, s.NumberDesired)
	for _, one := range d.States {
		if one.Missing {
			c.Reason = one.Reason
			c.Message += "; cluster " + one.Name + ": " + one.Message
			return c
		}
	}
	return c
}

func appliedOf(s *hubv1beta1.ManagedClusterModuleStatus, bad []State) metav1.Condition {
	c := metav1.Condition{Type: ConditionApplied, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady,
		Message: "all clusters have the Module"}
	if s.NumberApplied == s.NumberDesired {
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonAwaitingDelivery
	c.Message = fmt.Sprintf("%d of %d clusters have the Module", s.NumberApplied, s.NumberDesired)
	for _, one := range bad {
		if one.Refused {
			c.Reason, c.Message = v1beta1.ReasonDeliveryRefused, c.Message+"; cluster "+one.Name+": "+one.Message
			break
		}
	}
	return c
}
