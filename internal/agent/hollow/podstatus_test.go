// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWaitingStatus: a kubelet names a failed image on the container that needs it, and begins with
// the containers after the init containers.
func TestWaitingStatus(t *testing.T) {
	const agent, modules = "agent:1", "modules:1"
	cases := map[string]struct {
		copies  bool // an init container runs the kernel module image, where there are no image volumes
		refused string
		then    string
	}{
		"an image volume":               {refused: modules, then: "export: ErrImagePull"},
		"the agent beside a volume":     {refused: agent, then: "export: ErrImagePull"},
		"an init container":             {copies: true, refused: modules, then: "copy: ErrImagePull, export: PodInitializing"},
		"the agent after the init step": {copies: true, refused: agent, then: "copy: Completed, export: ErrImagePull"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "export", Image: agent}}}}
			if tc.copies {
				pod.Spec.InitContainers = []corev1.Container{{Name: "copy", Image: modules}}
			}
			status := waitingStatus(pod, tc.refused, "ErrImagePull", "denied", metav1.Now())
			var got []string
			for _, c := range append(status.InitContainerStatuses, status.ContainerStatuses...) {
				switch s := c.State; {
				case s.Waiting != nil:
					got = append(got, c.Name+": "+s.Waiting.Reason)
				case s.Terminated != nil:
					got = append(got, c.Name+": "+s.Terminated.Reason)
				}
			}
			if then := strings.Join(got, ", "); then != tc.then {
				t.Errorf("the containers are %q, want %q", then, tc.then)
			}
		})
	}
}

// TestAsserted: a kubelet says again that a pod is ready where the cluster called it not ready, and
// does not call a pod ready whose containers are not.
func TestAsserted(t *testing.T) {
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status}
	}
	yes, no := corev1.ConditionTrue, corev1.ConditionFalse
	now := metav1.Now()
	cases := map[string]struct {
		given    []corev1.PodCondition
		deleted  bool
		asserted bool
	}{
		"ready": {given: []corev1.PodCondition{condition(corev1.ContainersReady, yes), condition(corev1.PodReady, yes)}},
		"called not ready": {
			given: []corev1.PodCondition{condition(corev1.ContainersReady, yes), condition(corev1.PodReady, no)}, asserted: true,
		},
		"called not ready, going": {
			given: []corev1.PodCondition{condition(corev1.ContainersReady, yes), condition(corev1.PodReady, no)}, deleted: true,
		},
		"containers are not ready": {given: []corev1.PodCondition{condition(corev1.ContainersReady, no), condition(corev1.PodReady, no)}},
		"not begun":                {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: tc.given}}
			if tc.deleted {
				pod.DeletionTimestamp = &now
			}
			got := asserted(pod, now)
			if (got != nil) != tc.asserted {
				t.Fatalf("the conditions become %v", got)
			}
			if tc.asserted && (len(got) != 2 || got[1].Status != yes || !got[1].LastTransitionTime.Equal(&now) || tc.given[1].Status != no) {
				t.Errorf("the conditions become %v, and were %v", got, tc.given)
			}
		})
	}
}
