// SPDX-License-Identifier: Apache-2.0

package reported

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/internal/shared/words"
)

// maxTermination is more than kubelets keep of a container's termination message, in bytes.
const maxTermination = 16 << 10

// Pod cleans what a kubelet has written about a pod: what it says of pulls and containers, and what
// containers left behind.
func Pod(pod *corev1.Pod) {
	s := &pod.Status
	fit(maxTermination, &s.Message, &s.Reason)
	for i := range s.Conditions {
		fit(maxMessage, &s.Conditions[i].Reason, &s.Conditions[i].Message)
	}
	for _, all := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range all {
			fit(maxImage, &all[i].Image, &all[i].ImageID, &all[i].ContainerID)
			state(&all[i].State)
			state(&all[i].LastTerminationState)
		}
	}
}

func state(s *corev1.ContainerState) {
	if w := s.Waiting; w != nil {
		fit(maxTermination, &w.Reason, &w.Message)
	}
	if t := s.Terminated; t != nil {
		fit(maxTermination, &t.Reason, &t.Message, &t.ContainerID)
	}
}

// Node cleans what a kubelet has written about its node. The kernel version stays impossible if it
// was: see kernel.PlatformOf.
func Node(node *corev1.Node) {
	i := &node.Status.NodeInfo
	fit(maxText, &i.KernelVersion, &i.OSImage, &i.ContainerRuntimeVersion, &i.KubeletVersion, &i.OperatingSystem, &i.Architecture, &i.BootID,
		&i.MachineID, &i.SystemUUID, &i.KubeProxyVersion) //nolint:staticcheck // deprecated, and still anybody's text
	for c := range node.Status.Conditions {
		fit(maxMessage, &node.Status.Conditions[c].Reason, &node.Status.Conditions[c].Message)
	}
}

func fit(most int, texts ...*string) {
	for _, text := range texts {
		*text = words.Fit(*text, most)
	}
}
