// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
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
	"github.com/drover-project/drover/internal/shared/status"
	"github.com/drover-project/drover/internal/shared/words"
)

func (s *subject) mapping() Step {
	version, mappings := kernel.Show(&s.node.Status.NodeInfo), s.scene.Module.Spec.ModuleLoader.Container.KernelMappings
	switch {
	case s.wants.Err != nil:
		return Failed.step(reasons.StepMapping, s.wants.Err.Error()).because(kernel.Reason(s.wants.Err))
	case s.wants.State == nil:
		text := fmt.Sprintf("none of the %d kernelMappings matches kernel %s", len(mappings), version)
		return Failed.step(reasons.StepMapping, text).because(v1beta1.ReasonNoKernelMapping)
	}
	index := s.wants.State.Mapping
	matched := "literal " + mappings[index].Literal
	if mappings[index].Regexp != "" {
		matched = "regexp " + mappings[index].Regexp
	}
	return OK.step(reasons.StepMapping, fmt.Sprintf("kernel %s matches kernelMappings[%d] (%s)", version, index, matched))
}

func (s *subject) image() Step {
	if s.wants.State == nil {
		return Waiting.step(reasons.StepImage, "")
	}
	return OK.step(reasons.StepImage, s.wants.State.Config.ContainerImage)
}

func (s *subject) allowed() Step {
	m := s.scene.Module
	switch wishes := placement.WishesFor(m, s.node); {
	case placement.Paused(m):
		return Waiting.step(reasons.StepAllowed, "the Module has the annotation "+v1beta1.PausedAnnotation).because(v1beta1.ReasonPaused)
	case placement.Paused(s.node):
		return Waiting.step(reasons.StepAllowed, "the node has the annotation "+v1beta1.PausedAnnotation).because(v1beta1.ReasonPaused)
	case s.known.Unlabelled:
		text := fmt.Sprintf("the node's label %s%s.%s does not name version %s", v1beta1.VersionModulePrefix, m.Namespace, m.Name,
			m.Spec.ModuleLoader.Container.Version)
		return Waiting.step(reasons.StepAllowed, text).because(v1beta1.ReasonVersionLabel)
	case s.denied() != nil:
		return Failed.step(reasons.StepAllowed, s.denied().Message).because(v1beta1.ReasonPolicyDenied)
	case wishes.SkipChecks:
		return OK.step(reasons.StepAllowed, "not paused; the agent skips its checks ("+v1beta1.SkipChecksAnnotation+")")
	}
	return OK.step(reasons.StepAllowed, "not paused, and the build is not quarantined")
}

// denied is why a ModulePolicy keeps the order from the node, or nil.
func (s *subject) denied() *reasons.Problem {
	if p := s.scene.Deliveries(s.node.Name); p != nil && p.Reason == v1beta1.ReasonPolicyDenied {
		return p
	}
	return nil
}

func (s *subject) nodeReady() Step {
	if s.known.Ready {
		return OK.step(reasons.StepNode, "yes")
	}
	return Waiting.step(reasons.StepNode, "no: Drover delivers images to Ready nodes only")
}

func (s *subject) ordered() Step {
	order, turn := s.entry.Order, status.Turn(&s.about, s.node.Name)
	switch {
	case order == nil && s.leaves():
		return Waiting.step(reasons.StepOrdered, "the operator has not ordered the unload yet")
	case order == nil && turn != "":
		return Waiting.step(reasons.StepOrdered, "the node waits for its turn; "+turn)
	case order == nil:
		return Waiting.step(reasons.StepOrdered, "the operator has not given the order yet; it does so with the delivery")
	case order.State == v1beta1.NodeModuleAbsent:
		return s.answered(OK.step(reasons.StepOrdered, "the order is to unload ("+order.Reason+")"))
	case s.leaves():
		return Waiting.step(reasons.StepOrdered, "the order to load stands: a deselected node keeps the module for "+
			"spec.rollout.deselectGracePeriod")
	case s.wants.State != nil && order.Delivery != nil && order.Delivery.ID != s.wants.State.Delivery:
		text := "an older order stands: " + order.Config.ContainerImage
		if turn != "" {
			text += "; the node waits for its turn; " + turn
		}
		return Waiting.step(reasons.StepOrdered, text)
	case s.entry.Attempt == nil && s.entry.Live == nil:
		return s.answered(OK.step(reasons.StepOrdered, "the order stands; the node's agent has not answered yet"))
	}
	return OK.step(reasons.StepOrdered, "the order stands")
}

func (s *subject) delivered() Step {
	if s.wants.State == nil {
		return Waiting.step(reasons.StepDelivered, "")
	}
	for _, a := range s.entry.Artifacts {
		if a.ID == s.wants.State.Delivery {
			return OK.step(reasons.StepDelivered, "the node holds the image's content (sha256:"+words.Short(a.Digest)+")")
		}
	}
	switch c, p := s.view.Carrier(s.scene.Module, s.node.Name), s.scene.Deliveries(s.node.Name); {
	case s.denied() != nil:
		return Waiting.step(reasons.StepDelivered, "")
	case p != nil:
		// Even if the node has a worse problem.
		return Failed.step(reasons.StepDelivered, p.Message).because(p.Reason)
	case s.known.Live && s.entry.Live.Observed != nil && s.entry.Live.Observed.BuiltIn:
		return OK.step(reasons.StepDelivered, "not needed: the module is built into the kernel")
	case c == nil && s.asked():
		return Waiting.step(reasons.StepDelivered, "a label says that the node was baked with the content: its agent is asked before a "+
			"carrier pod comes")
	case c == nil && !s.view.PodsSeen:
		return Unknown.step(reasons.StepDelivered, "the node does not hold it; you may not see the pods that deliver it")
	case c == nil:
		// It waits for a slot, or for a pause to end.
		return Waiting.step(reasons.StepDelivered, "no carrier pod yet: deliveries wait for their turn, and for a while after a failure")
	default:
		return Waiting.step(reasons.StepDelivered, carrying(c, s.view.Now))
	}
}

// asked reports whether a baked node's agent is to answer before a carrier pod is made.
func (s *subject) asked() bool {
	_, baked := s.node.Labels[v1beta1.BakedLabel(s.wants.State.Delivery)]
	return baked && s.entry.Order != nil && s.entry.Attempt == nil && s.entry.Live == nil
}

func carrying(c *corev1.Pod, now time.Time) string {
	since, runs := delivery.RunningSince(c)
	if runs {
		return fmt.Sprintf("carrier pod %s has offered the content for %s; the node's agent has not taken it", c.Name, lasting(since, now))
	}
	return fmt.Sprintf("carrier pod %s has been %s for %s: the image is being pulled (kubectl describe pod %s -n %s)",
		c.Name, cmp.Or(c.Status.Phase, corev1.PodPending), lasting(c.CreationTimestamp.Time, now), c.Name, c.Namespace)
}

func (s *subject) checks() Step {
	if s.known.Live || s.entry.Attempt != nil && reasons.Step(s.entry.Attempt.Reason) == "" && s.entry.Attempt.State == v1beta1.AttemptFailed {
		return OK.step(reasons.StepChecks, "the agent's checks passed")
	}
	return Waiting.step(reasons.StepChecks, "")
}

// trusted is about signatures, and kernels that accept no modules.
func (s *subject) trusted() Step {
	switch live := s.entry.Live; {
	case !s.known.Live:
		return Waiting.step(reasons.StepTrusted, "")
	case live.Observed != nil && strings.Contains(live.Observed.Taint, "E"):
		return OK.step(reasons.StepTrusted, "the kernel accepted it without a trusted signature")
	}
	return OK.step(reasons.StepTrusted, "the kernel accepted it")
}

func (s *subject) loaded() Step {
	live := s.entry.Live
	switch {
	case live == nil && s.entry.Attempt != nil && s.entry.Attempt.State == v1beta1.AttemptAbsent:
		return OK.step(reasons.StepLoaded, "it is out of the kernel")
	case live == nil:
		return Waiting.step(reasons.StepLoaded, "it is not in the kernel")
	case !s.known.Live:
		return Waiting.step(reasons.StepLoaded, fmt.Sprintf("it was live in boot %s; the node has booted since (%s)", words.Short(live.BootID),
			words.Short(s.node.Status.NodeInfo.BootID)))
	case s.known.Available:
		return OK.step(reasons.StepLoaded, "live: "+alive(live, s.view.Now))
	}
	image := ptr.Deref(live.Config, v1beta1.ModuleConfig{}).ContainerImage
	return Waiting.step(reasons.StepLoaded, "live is "+image+": "+alive(live, s.view.Now))
}

func alive(live *v1beta1.NodeModuleStatus, now time.Time) string {
	parts := []string{}
	if o := live.Observed; o != nil {
		switch {
		case o.BuiltIn:
			parts = append(parts, "built into the kernel")
		case o.BuildID != "":
			parts = append(parts, "build ID "+words.Short(o.BuildID))
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
	parts = append(parts, "boot "+words.Short(live.BootID), "for "+lasting(live.LastTransitionTime.Time, now))
	return strings.Join(parts, ", ")
}

func (s *subject) readyLabel() Step {
	m := s.scene.Module
	key := v1beta1.ReadyLabel(m.Namespace, m.Name)
	if _, labelled := s.node.Labels[key]; labelled {
		return OK.step(reasons.StepReady, "the node has the label "+key)
	}
	return Waiting.step(reasons.StepReady, "the node does not have the label "+key)
}

func (s *subject) plugin() Step {
	m, node := s.scene.Module, s.node
	_, plugin := node.Labels[v1beta1.DevicePluginReadyLabel(m.Namespace, m.Name)]
	_, dra := node.Labels[v1beta1.DRAReadyLabel(m.Namespace, m.Name)]
	switch {
	case s.known.PluginReady || plugin || dra:
		return OK.step(reasons.StepPlugin, "its pod is ready on the node")
	case !s.view.PodsSeen:
		return Unknown.step(reasons.StepPlugin, "the node lacks the plugin's ready label, and you may not see the pods")
	}
	text := fmt.Sprintf("it has no ready pod on the node (kubectl get pods -n %s -l %s=%s)", m.Namespace, v1beta1.ModuleNameLabel, m.Name)
	return Waiting.step(reasons.StepPlugin, text).because(v1beta1.ReasonDevicesPending)
}

func (s *subject) repairs(steps []Step) []Step {
	live := s.entry.Live
	if !s.known.Live || live.Observed == nil || live.Observed.Repairs == 0 || live.Observed.LastRepair == nil {
		return steps
	}
	text := fmt.Sprintf("it disappeared from the kernel and was loaded again: %s in this boot, the last %s ago",
		words.Count(int(live.Observed.Repairs), "repair"), lasting(live.Observed.LastRepair.Time, s.view.Now))
	return append(steps, OK.step(stepRepairs, text))
}

func (s *subject) retry(steps []Step) []Step {
	a := s.entry.Attempt
	if a == nil || a.State != v1beta1.AttemptFailed && a.NextRetry == nil {
		return steps
	}
	text := "1 failed try"
	if a.Attempt != 1 {
		text = fmt.Sprintf("%d failed tries", a.Attempt)
	}
	if a.Strikes > 0 {
		text += fmt.Sprintf(", and the node went down with this build (%d)", a.Strikes)
	}
	switch {
	case a.NextRetry == nil:
		text += "; the next one after a change, at the node's next boot, or with "
	case a.NextRetry.After(s.view.Now):
		text += "; the next one in " + duration.HumanDuration(a.NextRetry.Sub(s.view.Now)) + ", or at once with "
	default:
		text = "at least " + text + "; the next one within 5 minutes, or at once with "
	}
	return append(steps, Waiting.step(stepRetry, text+"`"+command("retry", s.scene.Module, s.node.Name)+"`"))
}

func lasting(at, now time.Time) string {
	if at.IsZero() {
		return "an unknown time"
	}
	return duration.HumanDuration(now.Sub(at))
}
