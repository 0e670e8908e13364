// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

func (s *subject) mapping() Step {
	version := kernel.Trim(s.node.Status.NodeInfo.KernelVersion)
	switch {
	case s.wants.Err != nil:
		return Step{Name: reasons.StepMapping, State: Failed, Reason: v1beta1.ReasonNoKernelMapping, Text: s.wants.Err.Error()}
	case s.wants.State == nil:
		return Step{Name: reasons.StepMapping, State: Failed, Reason: v1beta1.ReasonNoKernelMapping,
			Text: fmt.Sprintf("none of the %d kernelMappings matches kernel %s",
				len(s.scene.Module.Spec.ModuleLoader.Container.KernelMappings), version)}
	}
	return Step{Name: reasons.StepMapping, State: OK,
		Text: fmt.Sprintf("kernel %s matches %s", version, Mapping(s.scene.Module, s.wants.State.Mapping))}
}

// Mapping names a kernel mapping by its index and what matched.
func Mapping(m *v1beta1.Module, index int) string {
	mapping := &m.Spec.ModuleLoader.Container.KernelMappings[index]
	if mapping.Regexp != "" {
		return fmt.Sprintf("kernelMappings[%d] (regexp %s)", index, mapping.Regexp)
	}
	return fmt.Sprintf("kernelMappings[%d] (literal %s)", index, mapping.Literal)
}

func (s *subject) image() Step {
	if s.wants.State == nil {
		return Step{Name: reasons.StepImage, State: Waiting}
	}
	return Step{Name: reasons.StepImage, State: OK, Text: s.wants.State.Config.ContainerImage}
}

func (s *subject) allowed() Step {
	m := s.scene.Module
	switch wishes := placement.WishesFor(m, s.node); {
	case placement.Paused(m):
		return Step{Name: reasons.StepAllowed, State: Waiting, Reason: v1beta1.ReasonPaused, Text: "the Module has the annotation " +
			v1beta1.PausedAnnotation}
	case placement.Paused(s.node):
		return Step{Name: reasons.StepAllowed, State: Waiting, Reason: v1beta1.ReasonPaused, Text: "the node has the annotation " +
			v1beta1.PausedAnnotation}
	case s.known.Unlabelled:
		return Step{Name: reasons.StepAllowed, State: Waiting, Reason: v1beta1.ReasonVersionLabel,
			Text: fmt.Sprintf("the node's label %s%s.%s does not name version %s",
				v1beta1.VersionModulePrefix, m.Namespace, m.Name, m.Spec.ModuleLoader.Container.Version)}
	case wishes.SkipChecks:
		return Step{Name: reasons.StepAllowed, State: OK, Text: "not paused; the agent skips its checks (" + v1beta1.SkipChecksAnnotation + ")"}
	}
	return Step{Name: reasons.StepAllowed, State: OK, Text: "not paused, and the build is not quarantined"}
}

func (s *subject) nodeReady() Step {
	if s.known.Ready {
		return Step{Name: reasons.StepNode, State: OK, Text: "yes"}
	}
	return Step{Name: reasons.StepNode, State: Waiting, Text: "no: Drover delivers images to Ready nodes only"}
}

func (s *subject) ordered() Step {
	order := s.entry.Order
	leaving := s.about.Deleting || !s.about.Loads || !s.known.Wanted
	switch {
	case order == nil && leaving:
		return Step{Name: reasons.StepOrdered, State: Waiting, Text: "the operator has not ordered the unload yet"}
	case order == nil:
		return Step{Name: reasons.StepOrdered, State: Waiting, Text: "the operator has not given the order yet; it does so with the delivery"}
	case order.State == v1beta1.NodeModuleAbsent:
		return s.answered(Step{Name: reasons.StepOrdered, State: OK, Text: "the order is to unload (" + order.Reason + ")"})
	case leaving:
		return Step{Name: reasons.StepOrdered, State: Waiting, Text: "the order to load stands: a deselected node keeps the module for " +
			"spec.rollout.deselectGracePeriod"}
	case s.wants.State != nil && order.Delivery != nil && order.Delivery.ID != s.wants.State.Delivery:
		return Step{Name: reasons.StepOrdered, State: Waiting, Text: "an older order stands: " + order.Config.ContainerImage}
	case s.entry.Attempt == nil && s.entry.Live == nil:
		return s.answered(Step{Name: reasons.StepOrdered, State: OK, Text: "the order stands; the node's agent has not answered yet"})
	}
	return Step{Name: reasons.StepOrdered, State: OK, Text: "the order stands"}
}

func (s *subject) delivered() Step {
	if s.wants.State == nil {
		return Step{Name: reasons.StepDelivered, State: Waiting}
	}
	for _, a := range s.entry.Artifacts {
		if a.ID == s.wants.State.Delivery {
			return Step{Name: reasons.StepDelivered, State: OK, Text: "the node holds the image's content (sha256:" + short(a.Digest) + ")"}
		}
	}
	switch c, p := s.carrier, s.scene.Deliveries(s.node.Name); {
	case p != nil:
		// Even if the node has a worse problem.
		return Step{Name: reasons.StepDelivered, State: Failed, Reason: p.Reason, Text: p.Message}
	case s.known.Live && s.entry.Live.Observed != nil && s.entry.Live.Observed.BuiltIn:
		return Step{Name: reasons.StepDelivered, State: OK, Text: "not needed: the module is built into the kernel"}
	case c == nil && !s.podsSeen:
		return Step{Name: reasons.StepDelivered, State: Unknown, Text: "the node does not hold it; you may not see the pods that deliver it"}
	case c == nil:
		// It waits for a slot, or for a pause to end.
		return Step{Name: reasons.StepDelivered, State: Waiting, Text: "no carrier pod yet: deliveries wait for their turn, and for a while " +
			"after a failure"}
	default:
		return Step{Name: reasons.StepDelivered, State: Waiting, Text: carrying(c, s.now)}
	}
}

func carrying(c *corev1.Pod, now time.Time) string {
	since, runs := delivery.RunningSince(c)
	if runs {
		return fmt.Sprintf("carrier pod %s has offered the content for %s; the node's agent has not taken it", c.Name, lasting(since, now))
	}
	phase := c.Status.Phase
	if phase == "" {
		phase = corev1.PodPending
	}
	return fmt.Sprintf("carrier pod %s has been %s for %s: the image is being pulled (kubectl describe pod %s -n %s)",
		c.Name, phase, lasting(c.CreationTimestamp.Time, now), c.Name, c.Namespace)
}

func (s *subject) checks() Step {
	if s.known.Live || s.entry.Attempt != nil && reasons.Step(s.entry.Attempt.Reason) == "" && s.entry.Attempt.State == v1beta1.AttemptFailed {
		return Step{Name: reasons.StepChecks, State: OK, Text: "the agent's checks passed"}
	}
	return Step{Name: reasons.StepChecks, State: Waiting}
}

// trusted is about signatures, and kernels that accept no modules.
func (s *subject) trusted() Step {
	switch live := s.entry.Live; {
	case !s.known.Live:
		return Step{Name: reasons.StepTrusted, State: Waiting}
	case live.Observed != nil && strings.Contains(live.Observed.Taint, "E"):
		return Step{Name: reasons.StepTrusted, State: OK, Text: "the kernel accepted it without a trusted signature"}
	}
	return Step{Name: reasons.StepTrusted, State: OK, Text: "the kernel accepted it"}
}

func (s *subject) loaded() Step {
	live := s.entry.Live
	switch {
	case live == nil && s.entry.Attempt != nil && s.entry.Attempt.State == v1beta1.AttemptAbsent:
		return Step{Name: reasons.StepLoaded, State: OK, Text: "it is out of the kernel"}
	case live == nil:
		return Step{Name: reasons.StepLoaded, State: Waiting, Text: "it is not in the kernel"}
	case !s.known.Live:
		return Step{Name: reasons.StepLoaded, State: Waiting, Text: fmt.Sprintf("it was live in boot %s; the node has booted since (%s)",
			short(live.BootID), short(s.node.Status.NodeInfo.BootID))}
	case s.known.Available:
		return Step{Name: reasons.StepLoaded, State: OK, Text: "live: " + alive(live, s.now)}
	}
	return Step{Name: reasons.StepLoaded, State: Waiting, Text: "live is " + ptr.Deref(live.Config, v1beta1.ModuleConfig{}).ContainerImage +
		": " + alive(live, s.now)}
}

func alive(live *v1beta1.NodeModuleStatus, now time.Time) string {
	parts := []string{}
	if o := live.Observed; o != nil {
		switch {
		case o.BuiltIn:
			parts = append(parts, "built into the kernel")
		case o.BuildID != "":
			parts = append(parts, "build ID "+short(o.BuildID))
		case o.SrcVersion != "":
			parts = append(parts, "srcversion "+o.SrcVersion)
		}
		if o.Adopted {
			parts = append(parts, "live before the agent came")
		}
		if o.Taint != "" {
			parts = append(parts, "taints the kernel ("+o.Taint+")")
		}
	}
	parts = append(parts, "boot "+short(live.BootID), "for "+lasting(live.LastTransitionTime.Time, now))
	return strings.Join(parts, ", ")
}

func (s *subject) readyLabel() Step {
	m := s.scene.Module
	key := v1beta1.ReadyLabel(m.Namespace, m.Name)
	if _, labelled := s.node.Labels[key]; labelled {
		return Step{Name: reasons.StepReady, State: OK, Text: "the node has the label " + key}
	}
	return Step{Name: reasons.StepReady, State: Waiting, Text: "the node does not have the label " + key}
}

func (s *subject) plugin() Step {
	m, node := s.scene.Module, s.node
	_, plugin := node.Labels[v1beta1.DevicePluginReadyLabel(m.Namespace, m.Name)]
	_, dra := node.Labels[v1beta1.DRAReadyLabel(m.Namespace, m.Name)]
	switch {
	case s.known.PluginReady || plugin || dra:
		return Step{Name: reasons.StepPlugin, State: OK, Text: "its pod is ready on the node"}
	case !s.podsSeen:
		return Step{Name: reasons.StepPlugin, State: Unknown, Text: "the node lacks the plugin's ready label, and you may not see the pods"}
	}
	return Step{Name: reasons.StepPlugin, State: Waiting, Reason: v1beta1.ReasonDevicesPending,
		Text: fmt.Sprintf("it has no ready pod on the node (kubectl get pods -n %s -l %s=%s)", m.Namespace, v1beta1.ModuleNameLabel, m.Name)}
}

func (s *subject) repairs(steps []Step) []Step {
	live := s.entry.Live
	if !s.known.Live || live.Observed == nil || live.Observed.Repairs == 0 || live.Observed.LastRepair == nil {
		return steps
	}
	return append(steps, Step{Name: stepRepairs, State: OK, Text: fmt.Sprintf("it disappeared from the kernel and was loaded again: %s in "+
		"this boot, the last %s ago",
		words.Count(int(live.Observed.Repairs), "repair"), lasting(live.Observed.LastRepair.Time, s.now))})
}

func (s *subject) retry(steps []Step) []Step {
	a := s.entry.Attempt
	if a == nil || a.State != v1beta1.AttemptFailed && a.NextRetry == nil {
		return steps
	}
	text := words.Count(int(a.Attempt), "failed try")
	if a.Attempt > 1 {
		text = fmt.Sprintf("%d failed tries", a.Attempt)
	}
	if a.Strikes > 0 {
		text += fmt.Sprintf(", and the node went down with this build (%d)", a.Strikes)
	}
	switch {
	case a.NextRetry == nil:
		text += "; the next one after a change, at the node's next boot, or with "
	case a.NextRetry.After(s.now):
		text += "; the next one in " + duration.HumanDuration(a.NextRetry.Sub(s.now)) + ", or at once with "
	default:
		text = "at least " + text + "; the next one within 5 minutes, or at once with "
	}
	return append(steps, Step{Name: stepRetry, State: Waiting, Text: text + "`" + command("retry", s.scene.Module, s.node.Name) + "`"})
}

func labels(set map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		parts = append(parts, key+"="+set[key])
	}
	return strings.Join(parts, ",")
}

func short(id string) string {
	const enough = 12
	if len(id) > enough {
		return id[:enough]
	}
	return id
}

func lasting(at, now time.Time) string {
	if at.IsZero() {
		return "an unknown time"
	}
	return duration.HumanDuration(now.Sub(at))
}
