// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/internal/shared/words"
)

// TestWhyTheAgentIsMissing reads the pod that should be there.
func TestWhyTheAgentIsMissing(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	ended := func(message, reason string, at time.Time) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "agent", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: reason, Message: message,
				FinishedAt: metav1.NewTime(at)}},
		}}}
	}
	cases := map[string]struct {
		given []corev1.PodStatus
		gone  bool
		then  string
		works bool
	}{
		"no pod": {then: "no drover-agent pod is on the node: its DaemonSet is missing, or does not select the node (kubectl get daemonsets -A " +
			"-l app.kubernetes.io/name=drover-agent)"},
		"pending": {
			given: []corev1.PodStatus{{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: " +
					"insufficient memory",
			}}}},
			then: "its pod ns/agent is not scheduled (Unschedulable): 0/1 nodes are available: insufficient memory",
		},
		"image pull": {given: []corev1.PodStatus{waiting("ImagePullBackOff", "agent:1: not found")},
			then: "its pod ns/agent cannot start (ImagePullBackOff): agent:1: not found"},
		"configuration": {given: []corev1.PodStatus{waiting("CreateContainerConfigError", "no such Secret")},
			then: "its pod ns/agent cannot start (CreateContainerConfigError): no such Secret"},
		"is being begun": {given: []corev1.PodStatus{waiting("ContainerCreating", "")}, then: "its pod ns/agent has been starting for 60m",
			works: true},
		"out of memory": {
			given: []corev1.PodStatus{{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "agent", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
			}}}},
			then: "its pod ns/agent crashes: its container agent ended 3 times, most recently with exit code 137 (OOMKilled)",
		},
		"has just crashed": {
			given: []corev1.PodStatus{{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "agent", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error",
					Message: "no such flag"}},
			}}}},
			then: "its pod ns/agent crashes: its container agent ended 1 time, most recently with exit code 2: no such flag",
		},
		"evicted": {
			given: []corev1.PodStatus{{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on disk"}},
			then:  "its pod ns/agent has ended (Evicted the node was low on disk)",
		},
		"has ended itself": {
			given: []corev1.PodStatus{ended("hung\nin\x1b[31m a load"+strings.Repeat(".", 1000), "Error", noon.Add(-23*time.Hour))},
			then: "its pod ns/agent runs again: its container agent ended 2 times, most recently with exit code 1: " +
				words.Clip("hung in?[31m a load"+strings.Repeat(".", 1000), 512), works: true},
		"has used all its memory": {given: []corev1.PodStatus{ended("", "OOMKilled", noon)},
			then: "its pod ns/agent runs again: its container agent ended 2 times, most recently with exit code 1 (OOMKilled)", works: true},
		"ended long ago": {given: []corev1.PodStatus{ended("hung", "Error", noon.Add(-25*time.Hour))}, then: "its pod ns/agent runs",
			works: true},
		"the node has booted": {given: []corev1.PodStatus{ended("", "Unknown", noon)}, then: "its pod ns/agent runs", works: true},
		"runs":                {given: []corev1.PodStatus{{Phase: corev1.PodRunning}}, then: "its pod ns/agent runs", works: true},
		"is ending": {given: []corev1.PodStatus{{Phase: corev1.PodRunning}}, gone: true,
			then: "its pod ns/agent is ending, and there is no other"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var pods []corev1.Pod
			for _, status := range tc.given {
				pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent",
					CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}, Status: status}
				if tc.gone {
					pod.DeletionTimestamp = &metav1.Time{Time: noon}
				}
				pods = append(pods, pod)
			}
			text, works := AgentState(pods, noon)
			if diff := cmp.Diff(tc.then, text); diff != "" || works != tc.works {
				t.Errorf("works %t (-want +got):\n%s", works, diff)
			}
		})
	}
}
