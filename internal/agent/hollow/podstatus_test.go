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
