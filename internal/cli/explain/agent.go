// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/words"
)

// unanswered reports whether the node's agent has still to answer an order.
func (s *subject) unanswered() bool {
	return s.entry.Order != nil && s.entry.Attempt == nil && !s.known.Available
}

func (s *subject) answered(step Step) Step {
	if !s.view.AgentsSeen {
		return step
	}
	text, works := AgentState(s.view.Agents, s.view.Now)
	step.Text += "; " + text
	if !works {
		step.State, step.Reason = Failed, v1beta1.ReasonAgentMissing
	}
	return step
}

// AgentState describes a node's agent. It works when nothing is known to keep it from answering.
func AgentState(pods []corev1.Pod, now time.Time) (text string, works bool) {
	if len(pods) == 0 {
		return "no drover-agent pod is on the node: its DaemonSet is missing, or does not select the node " +
			"(kubectl get daemonsets -A -l app.kubernetes.io/name=drover-agent)", false
	}
	pod := &pods[0]
	for i := range pods {
		if pods[i].DeletionTimestamp == nil { // its successor
			pod = &pods[i]
		}
	}
	who := "its pod " + pod.Namespace + "/" + pod.Name
	if pod.DeletionTimestamp != nil {
		return who + " is ending, and there is no other", false
	}
	if why := stuck(pod); why != "" {
		return who + " " + why, false
	}
	switch pod.Status.Phase {
	case corev1.PodRunning:
		if ended := EndedItself(pod, now); ended != "" {
			return who + " runs again: " + ended, true
		}
		return who + " runs", true
	case corev1.PodFailed, corev1.PodSucceeded:
		return fmt.Sprintf("%s has ended (%s %s)", who, pod.Status.Reason, pod.Status.Message), false
	case corev1.PodPending, corev1.PodUnknown:
	}
	return fmt.Sprintf("%s has been starting for %s", who, lasting(pod.CreationTimestamp.Time, now)), true
}

func stuck(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "is not scheduled (" + c.Reason + "): " + c.Message
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if why := stuckContainer(&c); why != "" {
			return why
		}
	}
	return ""
}

func stuckContainer(c *corev1.ContainerStatus) string {
	last, w := c.LastTerminationState.Terminated, c.State.Waiting
	switch {
	case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
		return "crashes: " + crash(c, c.State.Terminated)
	case w == nil, w.Reason == "", w.Reason == "ContainerCreating", w.Reason == "PodInitializing":
		return ""
	case last == nil || w.Reason != "CrashLoopBackOff":
		return "cannot start (" + w.Reason + "): " + w.Message
	}
	return "crashes: " + crash(c, last)
}

// recent is how long a container that runs again is told to have ended.
const recent = 24 * time.Hour

// EndedItself describes a container of a running agent's pod that left word why it ended, or had
// used all its memory, in the last day; empty: there is none. Others end when their node boots.
func EndedItself(pod *corev1.Pod, now time.Time) string {
	for _, c := range pod.Status.ContainerStatuses {
		last := c.LastTerminationState.Terminated
		if last == nil || last.ExitCode == 0 || last.Message == "" && last.Reason != "OOMKilled" || now.Sub(last.FinishedAt.Time) > recent {
			continue
		}
		return crash(&c, last)
	}
	return ""
}

// maxMessage bounds what is shown of a container's last words, in bytes.
const maxMessage = 512

func crash(c *corev1.ContainerStatus, last *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("its container %s ended %s, most recently with exit code %d", c.Name, words.Count(int(max(c.RestartCount, 1)), "time"),
		last.ExitCode)
	if last.Reason != "" && last.Reason != "Error" {
		text += " (" + last.Reason + ")"
	}
	if last.Message != "" {
		text += ": " + words.Clip(words.Line(last.Message), maxMessage)
	}
	return text
}
