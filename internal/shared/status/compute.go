// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/words"
)

// Compute gives a Module's status without transition times; see [Carry].
func Compute(m *Module) v1beta1.ModuleStatus {
	nodes := slices.Clone(m.Nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	wanted := only(nodes, func(n *Node) bool { return n.Wanted })

	result := v1beta1.ModuleStatus{
		ObservedGeneration:            m.Generation,
		ImageRebuildTriggerGeneration: rebuilt(m, wanted),
	}
	if m.Loads {
		result.ModuleLoader = v1beta1.DaemonSetStatus{
			NodesMatchingSelectorNumber: int32(len(wanted)),
			DesiredNumber:               count(nodes, func(n *Node) bool { return n.Ordered }),
			// As upstream: what is ordered is live. Nodes that wait for their turn count.
			AvailableNumber: count(nodes, func(n *Node) bool { return n.Usable }),
		}
	}
	if m.HasPlugin {
		result.DevicePlugin = pluginNumbers(nodes, wanted)
	}
	if m.HasDRA {
		result.DRA = pluginNumbers(nodes, wanted)
	}
	covered, loaded, devices := kernelsCovered(m, wanted), loaded(m, nodes, wanted), devicesReady(m, wanted)
	result.Conditions = []metav1.Condition{ready(m, covered, loaded, devices), covered, loaded, devices}
	if m.Makes && m.Loads && !m.Deleting {
		result.Conditions = append(result.Conditions, imagesAvailable(m, wanted))
	}
	if p := m.ReadOnly; p != nil { // nothing comes of what is asked
		result.Conditions[0] = no(v1beta1.ConditionReady, p.Reason, p.Message)
	}
	if stalled(m, &result.Conditions[0]) {
		result.Conditions = append(result.Conditions, yes(v1beta1.ConditionStalled, result.Conditions[0].Reason, result.Conditions[0].Message))
	}
	for i := range result.Conditions {
		result.Conditions[i].ObservedGeneration = m.Generation
	}
	return result
}

func pluginNumbers(nodes, wanted []Node) v1beta1.DaemonSetStatus {
	return v1beta1.DaemonSetStatus{
		NodesMatchingSelectorNumber: int32(len(wanted)),
		DesiredNumber:               int32(len(wanted)),
		AvailableNumber:             count(nodes, func(n *Node) bool { return n.PluginReady }),
	}
}

// rebuilt is the rebuild that has reached every wanted node. Who asked for it waits for this.
func rebuilt(m *Module, wanted []Node) *int {
	old := only(wanted, func(n *Node) bool { return n.Unmapped == nil && !n.Available })
	if m.Deleting || m.Loads && len(old) > 0 {
		return m.RebuiltTrigger
	}
	return m.RebuildTrigger
}

// Carry keeps the transition times of conditions whose status is the same as before.
func Carry(before, after v1beta1.ModuleStatus, now metav1.Time) v1beta1.ModuleStatus {
	after.Conditions = slices.Clone(after.Conditions)
	for i := range after.Conditions {
		c := &after.Conditions[i]
		c.LastTransitionTime = now
		if o := meta.FindStatusCondition(before.Conditions, c.Type); o != nil && o.Status == c.Status {
			c.LastTransitionTime = o.LastTransitionTime
		}
	}
	return after
}

// ready is the first of the others that is not True. A failure comes before what is on its way.
func ready(m *Module, covered, loaded, devices metav1.Condition) metav1.Condition {
	order := []metav1.Condition{covered, loaded, devices}
	if !reasons.OnItsWay(loaded.Reason) || loaded.Reason == v1beta1.ReasonUnloading {
		order = []metav1.Condition{loaded, covered, devices}
	}
	for _, c := range order {
		if c.Status != metav1.ConditionTrue {
			return condition(v1beta1.ConditionReady, c.Status, c.Reason, c.Message)
		}
	}
	if p := unwritten(m.Nodes); p != nil && !m.Deleting {
		return no(v1beta1.ConditionReady, p.Reason, p.Message)
	}
	if p := m.TaintProblem; p != nil && !m.Deleting {
		return no(v1beta1.ConditionReady, p.Reason, p.Message)
	}
	return yes(v1beta1.ConditionReady, v1beta1.ReasonReady, "Every selected node has everything that the Module asks for")
}

func kernelsCovered(m *Module, wanted []Node) metav1.Condition {
	const kind = v1beta1.ConditionKernelsCovered
	switch {
	case !m.Loads:
		return yes(kind, v1beta1.ReasonNotRequested, "The Module has no moduleLoader")
	case len(wanted) == 0:
		return yes(kind, v1beta1.ReasonNoNodes, noNodes)
	}
	bare := only(wanted, func(n *Node) bool { return n.Unmapped != nil })
	if len(bare) == 0 {
		return yes(kind, v1beta1.ReasonAllKernelsCovered,
			fmt.Sprintf("A kernel mapping matches the kernel of %s", words.Count(len(wanted), "selected node")))
	}
	return no(kind, bare[0].Unmapped.Reason, uncovered(bare))
}

func loaded(m *Module, nodes, wanted []Node) metav1.Condition {
	const kind = v1beta1.ConditionLoaded
	switch pending := only(nodes, func(n *Node) bool { return n.Pending }); {
	case m.Deleting:
		return unloading(m, pending)
	case m.Rollout != nil && len(m.Rollout.Mass) > 0:
		return no(kind, v1beta1.ReasonMassDeselection, mass(m))
	case !m.Loads && len(pending) > 0:
		return unloading(m, pending)
	case !m.Loads:
		return yes(kind, v1beta1.ReasonNotRequested, "The Module has no moduleLoader")
	case len(wanted) == 0:
		return nowhere(m, kind)
	}
	desired := only(wanted, func(n *Node) bool { return n.Unmapped == nil || n.Ordered })
	if len(desired) == 0 {
		return no(kind, wanted[0].Unmapped.Reason, uncovered(wanted))
	}
	missing := only(desired, func(n *Node) bool { return !n.Available })
	if len(missing) == 0 {
		live := "Live on " + words.Count(len(desired), "node")
		if mixed := mixture(desired); mixed != "" {
			return yes(kind, v1beta1.ReasonMixedContent, live+"; "+mixed)
		}
		if other := group(only(desired, func(n *Node) bool { return rollout.Remark(n.Attempt) }), m.loadProblem); len(other) > 0 {
			return yes(kind, other[0].Reason, live+"; "+describe(other))
		}
		if out := keptOut(nodes); out != "" {
			return yes(kind, v1beta1.ReasonTainted, live+"; "+out)
		}
		return yes(kind, v1beta1.ReasonLoaded, live)
	}
	groups := group(missing, m.loadProblem)
	reason := groups[0].Reason
	switch {
	case m.Paused && reasons.OnItsWay(reason):
		reason = v1beta1.ReasonPaused
	case reasons.OnItsWay(reason) && m.Rollout != nil && m.Rollout.Halt != "":
		reason = v1beta1.ReasonRolloutPaused
	case reasons.OnItsWay(reason) && m.Rollout != nil && m.Rollout.Waiting > 0:
		reason = v1beta1.ReasonRollingOut
	}
	what := "Live"
	if slices.ContainsFunc(missing, notUsable) {
		what = "Live and ready"
	}
	out := keptOut(nodes)
	if out != "" {
		out = "; " + out
	}
	return no(kind, reason, fmt.Sprintf("%s on %d of %s%s%s; %s%s%s%s", what, len(desired)-len(missing), words.Count(len(desired), "node"),
		others(missing), progress(m), describe(groups), unmade(m, groups), ignored(m, missing), out))
}

// unmade says that nobody makes an image that the Module wants built or signed.
func unmade(m *Module, groups []Cohort) string {
	if !m.MakesNone || !slices.ContainsFunc(groups, func(c Cohort) bool { return c.Reason == v1beta1.ReasonImageNotFound }) {
		return ""
	}
	return "; the Module asks for a build or a signature, but this operator makes no images: run it with --signer-image and the " +
		"controller image"
}

// ignored names requests to try again that are not valid times.
func ignored(m *Module, missing []Node) string {
	of := ""
	if n := only(missing, func(n *Node) bool { return n.RetryIgnored }); len(n) > 0 {
		of = " on " + namesOf(n)
	} else if m.RetryIgnored {
		of = " on the Module"
	}
	if of == "" {
		return ""
	}
	return "; the annotation " + v1beta1.RetryAnnotation + of + " is ignored: its value is not a valid RFC 3339 time"
}

func others(missing []Node) string {
	n := count(missing, func(n *Node) bool { return n.Live && !notUsable(*n) })
	if n == 0 {
		return ""
	}
	return ", another build is live on " + words.Count(int(n), "node")
}

// notUsable is true where a live kernel module fails a check of readyWhen.
func notUsable(n Node) bool { return n.Attempt != nil && n.Attempt.Reason == v1beta1.ReasonNotUsable }

// loadProblem is why the kernel module is not live on a node that should have it.
func (m *Module) loadProblem(n *Node) reasons.Problem {
	switch {
	case n.Struck != nil && (n.Attempt == nil || n.Attempt.Reason == n.Struck.Reason):
		return *n.Struck
	case n.Delivery != nil && n.Delivery.Reason == v1beta1.ReasonDrainBlocked: // says more than InUse
		return *n.Delivery
	case n.Delivery != nil && n.Delivery.Reason == v1beta1.ReasonWriteRefused: // what the agent says is of an older order
		return *n.Delivery
	case n.Attempt != nil && troubled(n.Attempt):
		return reasons.Problem{Reason: n.Attempt.Reason, Message: n.Attempt.Message}
	case n.Unmapped != nil:
		return *n.Unmapped
	case n.Paused:
		return reasons.Problem{Reason: v1beta1.ReasonPaused}
	case n.Delivery != nil:
		return *n.Delivery
	case !n.Ready:
		return reasons.Problem{Reason: v1beta1.ReasonNodeNotReady}
	case n.Unlabelled:
		return reasons.Problem{Reason: v1beta1.ReasonVersionLabel}
	case m.Rollout != nil && m.Rollout.Hold[n.Name]:
		return reasons.Problem{Reason: v1beta1.ReasonRollingOut}
	case m.Others != nil:
		return *m.Others
	default:
		return reasons.Problem{Reason: v1beta1.ReasonLoading}
	}
}

// troubled is true for an attempt that says more than that the order is on its way.
func troubled(a *v1beta1.NodeModuleAttempt) bool {
	switch a.State {
	case v1beta1.AttemptFailed, v1beta1.AttemptInUse:
		return a.Reason != ""
	case v1beta1.AttemptWaiting:
		return a.Reason != "" && a.Reason != v1beta1.ReasonAwaitingDelivery
	case v1beta1.AttemptAbsent, v1beta1.AttemptUnclaimed:
	}
	return false
}

func devicesReady(m *Module, wanted []Node) metav1.Condition {
	const kind = v1beta1.ConditionDevicesReady
	what := "device plugin"
	if m.HasDRA {
		what = "DRA driver"
	}
	switch {
	case !m.HasPlugin && !m.HasDRA:
		return yes(kind, v1beta1.ReasonNotRequested, "The Module has no device plugin and no DRA driver")
	case m.PluginProblem != nil:
		return no(kind, m.PluginProblem.Reason, m.PluginProblem.Message)
	case len(wanted) == 0:
		return nowhere(m, kind)
	}
	hosts := only(wanted, func(n *Node) bool { return n.Usable || !m.Loads })
	if len(hosts) == 0 {
		return no(kind, v1beta1.ReasonDevicesPending, "The kernel module is not ready on any node yet")
	}
	pending := only(hosts, func(n *Node) bool { return !n.PluginReady })
	if len(pending) == 0 {
		return yes(kind, v1beta1.ReasonDevicesReady, fmt.Sprintf("The %s is ready on %s", what, words.Count(len(hosts), "node")))
	}
	reason, because := v1beta1.ReasonDevicesPending, ""
	if p := unwritten(pending); p != nil { // pods go where the labels are
		reason, because = p.Reason, "; "+p.Message
	}
	return no(kind, reason, fmt.Sprintf("The %s is ready on %d of %s; not on %s%s",
		what, len(hosts)-len(pending), words.Count(len(hosts), "node"), namesOf(pending), because))
}

// unwritten is why labels of nodes cannot be written, or nil.
func unwritten(nodes []Node) *reasons.Problem {
	refused := only(nodes, func(n *Node) bool { return n.Labels != nil })
	if len(refused) == 0 {
		return nil
	}
	groups := group(refused, func(n *Node) reasons.Problem { return *n.Labels })
	return &reasons.Problem{Reason: groups[0].Reason, Message: "Labels that pods go by are missing, or stay; " + describe(groups)}
}
