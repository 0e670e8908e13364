// SPDX-License-Identifier: Apache-2.0

package reported_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/reported"
	"github.com/drover-project/drover/internal/shared/words"
)

const hostile = "\x1b[2J\u202e\u200b\r"

// soil puts hostile text into all texts below a value.
func soil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		soil(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				soil(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		soil(v.Index(0))
	case reflect.String:
		v.SetString(hostile)
	}
}

// TestObjectsOfKubelets: what reaches people of pods and nodes is clean, and a version that no
// kernel can have does not become one.
func TestObjectsOfKubelets(t *testing.T) {
	pod, node := &corev1.Pod{}, &corev1.Node{}
	for _, of := range []any{&pod.Status.Message, &pod.Status.Reason, &pod.Status.Conditions, &pod.Status.InitContainerStatuses,
		&pod.Status.ContainerStatuses, &pod.Status.EphemeralContainerStatuses, &node.Status.NodeInfo, &node.Status.Conditions} {
		soil(reflect.ValueOf(of).Elem())
	}
	reported.Pod(pod)
	reported.Node(node)
	c, info := pod.Status.ContainerStatuses[0], node.Status.NodeInfo
	for name, text := range map[string]string{
		"message": pod.Status.Message, "reason": pod.Status.Reason, "condition": pod.Status.Conditions[0].Message,
		"waiting": c.State.Waiting.Message, "why": c.State.Waiting.Reason, "terminated": c.State.Terminated.Message,
		"last": c.LastTerminationState.Terminated.Message, "image": c.Image,
		"step": pod.Status.InitContainerStatuses[0].State.Terminated.Message,
		"os":   info.OSImage, "runtime": info.ContainerRuntimeVersion, "kubelet": info.KubeletVersion, "system": info.OperatingSystem,
		"node": node.Status.Conditions[0].Message,
	} {
		if text != words.Clean(hostile) {
			t.Errorf("%s is %q", name, text)
		}
	}
	for _, version := range []string{hostile, "6.1.0\t", "\u200b6.1.0", "6.1.0\x00", strings.Repeat("6", 300)} {
		node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: version}
		reported.Node(node)
		if p, err := kernel.PlatformOf(&node.Status.NodeInfo); err == nil {
			t.Errorf("%q has become kernel %s", version, p.Kernel)
		}
	}
}
