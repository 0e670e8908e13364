// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// ProblemOf is what a carrier pod's status says is wrong, or nil. The kubelet goes on trying as
// long as the pod is not Ended.
func ProblemOf(pod *corev1.Pod) *reasons.Problem {
	if pod.Status.Phase == corev1.PodFailed {
		return &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: failedMessage(pod)}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if p := containerProblem(&status); p != nil {
			return p
		}
	}
	return nil
}

// CannotStart reports whether the kubelet or the runtime cannot start one of a carrier's containers
// although it has the images: what they say when a volume is nothing that they can mount, or a
// container has no shell.
func CannotStart(pod *corev1.Pod) bool {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	return slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && slices.Contains(startErrors, s.State.Waiting.Reason)
	})
}

// startErrors are the kubelet's words for a container that has its image and does not start.
var startErrors = []string{"CreateContainerError", "CreateContainerConfigError", "RunContainerError"}

// Ended reports whether a carrier pod will never deliver: it is over. A carrier that does its work
// never completes.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// RunningSince is when the last of a carrier pod's containers started, and whether all of them run:
// then the image is there, and its content is ready to be taken, or nearly so.
func RunningSince(pod *corev1.Pod) (since time.Time, runs bool) {
	for i := range pod.Status.ContainerStatuses {
		running := pod.Status.ContainerStatuses[i].State.Running
		if running == nil {
			return time.Time{}, false
		}
		if running.StartedAt.After(since) {
			since = running.StartedAt.Time
		}
	}
	return since, len(pod.Status.ContainerStatuses) > 0
}

// Stalled is what to say of a carrier that has not been started for so long.
func Stalled(pod *corev1.Pod, since time.Duration) *reasons.Problem {
	why := "nothing is known of its containers"
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			why = w.Reason
		}
	}
	if pod.Spec.NodeName != "" && len(pod.Status.ContainerStatuses) == 0 {
		why = "its kubelet has said nothing of it"
	}
	return &reasons.Problem{Reason: v1beta1.ReasonAwaitingDelivery, Message: fmt.Sprintf(
		"carrier pod %s/%s has not started for more than %s (%s): kubectl describe pod -n %s %s shows its events",
		pod.Namespace, pod.Name, since, why, pod.Namespace, pod.Name)}
}

// Running reports whether all of a carrier pod's containers run.
func Running(pod *corev1.Pod) bool {
	_, runs := RunningSince(pod)
	return runs
}

func failedMessage(pod *corev1.Pod) string {
	said := slices.DeleteFunc([]string{pod.Status.Reason, pod.Status.Message}, func(text string) bool { return text == "" })
	if len(said) == 0 {
		return fmt.Sprintf("carrier pod %s failed", pod.Name)
	}
	return fmt.Sprintf("carrier pod %s: %s", pod.Name, strings.Join(said, ": "))
}

func containerProblem(status *corev1.ContainerStatus) *reasons.Problem {
	waiting := status.State.Waiting
	if waiting == nil {
		return nil
	}
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff":
		reason := pullReason(waiting.Message)
		// Beside the kernel module image, which is another container's or a volume's, a carrier runs the
		// agent's.
		if own := status.Image; reason == v1beta1.ReasonPullUnauthorized && status.Name != copyName && own != "" &&
			strings.Contains(waiting.Message, own) {
			reason = v1beta1.ReasonAgentImageUnauthorized
		}
		return &reasons.Problem{Reason: reason, Message: waiting.Message}
	case "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return &reasons.Problem{Reason: v1beta1.ReasonPullFailed, Message: waiting.Reason + ": " + waiting.Message}
	case "CreateContainerError", "CreateContainerConfigError", "RunContainerError", "CreatePodSandboxError":
		return &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: waiting.Reason + ": " + waiting.Message}
	case "CrashLoopBackOff":
		return crashProblem(status)
	}
	return nil
}

// crashProblem is about a step that ran and failed: the copy out of the image, or the export of it.
func crashProblem(status *corev1.ContainerStatus) *reasons.Problem {
	message := fmt.Sprintf("container %s of image %s keeps failing", status.Name, status.Image)
	if last := status.LastTerminationState.Terminated; last != nil {
		message = fmt.Sprintf("container %s of image %s ended with exit code %d", status.Name, status.Image, last.ExitCode)
	}
	return &reasons.Problem{Reason: v1beta1.ReasonImageUnreadable, Message: message}
}

// pullReason sorts what container runtimes pass on from registries. Runtimes have no codes for it,
// only words.
func pullReason(message string) string {
	text := strings.ToLower(message)
	for _, words := range []struct {
		reason string
		any    []string
	}{
		{v1beta1.ReasonPullUnauthorized, []string{"unauthorized", "authentication required", "authorization failed", "access denied", "denied: ",
			"403 forbidden", "no basic auth credentials"}},
		// The node's processor, or its platform: the registry has the image.
		{v1beta1.ReasonPullFailed, []string{"no match for platform", "i/o timeout", "no image found in manifest list"}},
		{v1beta1.ReasonImageNotFound, []string{"not found", "manifest unknown", "name unknown", "status 404", "status code 404"}},
	} {
		for _, word := range words.any {
			if strings.Contains(text, word) {
				return words.reason
			}
		}
	}
	return v1beta1.ReasonPullFailed
}
