// SPDX-License-Identifier: Apache-2.0

package hollow_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/agent/hollow"
)

// TestPodsAreReadyAgainWithTheirNode: a cluster that takes a node for lost calls its pods not
// ready, and leaves it to the kubelet to say otherwise.
func TestPodsAreReadyAgainWithTheirNode(t *testing.T) {
	r := start(t, hollow.Options{Nodes: 1, Kernels: []string{kernelA}})
	ctx := t.Context()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "plugin"},
		Spec:       corev1.PodSpec{NodeName: r.node(0), Containers: []corev1.Container{{Name: "plugin", Image: image}}},
	}
	if err := r.admin.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	r.do("/vanish?node=" + r.node(0))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse},
	}}
	if err := r.admin.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
	r.do("/return?node=" + r.node(0))
	r.eventually("the pod is ready again", func(ctx context.Context) (string, error) {
		err := r.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		for _, c := range pod.Status.Conditions {
			if c.Status != corev1.ConditionTrue {
				return fmt.Sprintf("%v", pod.Status.Conditions), err
			}
		}
		return "", err
	})
}
