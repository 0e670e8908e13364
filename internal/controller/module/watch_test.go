// SPDX-License-Identifier: Apache-2.0

package module

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestAHeartbeatIsNoChange(t *testing.T) {
	node := func(boot string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			BootID: boot, Swap: &corev1.NodeSwapStatus{Capacity: ptr.To[int64](1 << 30)},
		}}}
	}
	if !nodeFactsEqual(node("a"), node("a")) {
		t.Error("a node with swap changes with every heartbeat")
	}
	if nodeFactsEqual(node("a"), node("b")) {
		t.Error("a reboot is a change")
	}
}
