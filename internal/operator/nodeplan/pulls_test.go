// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestACarrierThatCannotPullIsMadeAgain with what may let it: another image of the agent, and when
// a retry is asked for, what its ServiceAccount has by now.
func TestACarrierThatCannotPullIsMadeAgain(t *testing.T) {
	stuck := []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"},
	}}}
	for name, tc := range map[string]struct {
		agent  string
		as     string
		status []corev1.ContainerStatus
		retry  time.Duration // after it was made; 0: none is asked for
		want   bool
	}{
		"on its way":                         {agent: "agent:1"},
		"other Secrets":                      {agent: "agent:1", as: "as before", want: true},
		"another image of the agent":         {agent: "agent:0", want: true},
		"it cannot pull":                     {agent: "agent:1", status: stuck},
		"and a retry is asked for":           {agent: "agent:1", status: stuck, retry: time.Minute, want: true},
		"but not since it was made":          {agent: "agent:1", status: stuck, retry: -time.Minute},
		"a retry, and nothing keeps it back": {agent: "agent:1", retry: time.Minute},
	} {
		carrier := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "export", Image: tc.agent}}},
			Status:     corev1.PodStatus{ContainerStatuses: tc.status},
		}
		if tc.as != "" {
			carrier.Annotations = map[string]string{v1beta1.PullsAsAnnotation: tc.as}
		}
		var retry time.Time
		if tc.retry != 0 {
			retry = noon.Add(tc.retry)
		}
		p := Pass{Module: given(), Carriers: Carriers{Image: "agent:1"}}
		if got := p.pullsOtherwise(&Aim{}, carrier, retry); got != tc.want {
			t.Errorf("%s: it is made again: %v", name, got)
		}
	}
}
