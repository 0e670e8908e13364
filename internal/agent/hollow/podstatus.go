// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runningStatus is what a kubelet says about a carrier at work.
func runningStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, QOSClass: pod.Status.QOSClass,
		Conditions: podConditions(now, corev1.ConditionTrue)}
	for _, c := range pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, initialised(c, now))
	}
	started := true
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}

// initialised is what a kubelet says about an init container that did its work.
func initialised(c corev1.Container, now metav1.Time) corev1.ContainerStatus {
	done := &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
	return corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: true, State: corev1.ContainerState{Terminated: done}}
}

// waitingStatus is what a kubelet says about a carrier of which an image cannot be pulled. The
// kubelet reports a failed image volume on the container that mounts it, and a container's own
// image on that, which begins when the init containers are done.
func waitingStatus(pod *corev1.Pod, image, reason, message string, now metav1.Time) corev1.PodStatus {
	if pod.Status.StartTime != nil {
		now = *pod.Status.StartTime
	}
	status := corev1.PodStatus{Phase: corev1.PodPending, StartTime: &now, QOSClass: pod.Status.QOSClass,
		Conditions: podConditions(now, corev1.ConditionFalse)}
	if reason == "ImagePullBackOff" {
		message = fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", image, message)
	}
	failed := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	state := failed
	for _, c := range pod.Spec.InitContainers {
		if c.Image == image {
			state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
			status.InitContainerStatuses = append(status.InitContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: failed})
			continue
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, initialised(c, now))
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: state})
	}
	return status
}

func podConditions(now metav1.Time, ready corev1.ConditionStatus) []corev1.PodCondition {
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: now}
	}
	return []corev1.PodCondition{
		condition(corev1.PodScheduled, corev1.ConditionTrue), condition(corev1.PodInitialized, ready),
		condition(corev1.ContainersReady, ready), condition(corev1.PodReady, ready),
	}
}

// assertPods says again that pods are ready which the cluster called not ready when it took the
// node for lost, as a kubelet does, to whom the cluster's word about its pods means nothing.
func (n *node) assertPods(ctx context.Context) error {
	pods, err := n.api.podsOf(ctx, n.name)
	errs := []error{err}
	for i := range pods {
		if conditions := asserted(&pods[i], metav1.NewTime(n.clock.Now())); conditions != nil {
			errs = append(errs, ignoreGone(n.api.patchPodStatus(ctx, &pods[i], corev1.PodStatus{Conditions: conditions})))
		}
	}
	return errors.Join(errs...)
}

// asserted are the conditions of a pod with containers that are all ready, where the cluster says
// that the pod is not; nil where that is not so. The cluster changes no other condition.
func asserted(pod *corev1.Pod, now metav1.Time) []corev1.PodCondition {
	is := func(kind corev1.PodConditionType, status corev1.ConditionStatus) func(corev1.PodCondition) bool {
		return func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == status }
	}
	all := slices.Clone(pod.Status.Conditions)
	ready := slices.IndexFunc(all, is(corev1.PodReady, corev1.ConditionFalse))
	if pod.DeletionTimestamp != nil || ready < 0 || !slices.ContainsFunc(all, is(corev1.ContainersReady, corev1.ConditionTrue)) {
		return nil
	}
	all[ready].Status, all[ready].LastTransitionTime = corev1.ConditionTrue, now
	return all
}
