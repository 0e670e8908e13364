// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestPluginPodsAreKMMsWhileItRuns: it has yet to take off a label, and then lets them go itself.
func TestPluginPodsAreKMMsWhileItRuns(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "nic-device-plugin-x7k2p-abcde", DeletionTimestamp: &metav1.Time{Time: metav1.Now().Time},
		Labels:     map[string]string{v1beta1.ModuleNameLabel: "nic", v1beta1.RoleLabel: v1beta1.RoleDevicePlugin},
		Finalizers: []string{v1beta1.PluginPodFinalizer},
	}}
	key := client.ObjectKeyFromObject(pod)
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	r := &releaser{client: c, gate: &gate.Gate{}}
	pass := func(ctx context.Context) reconcile.Result {
		result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	r.gate.Set(&reasons.Problem{Reason: v1beta1.ReasonPeerActive, Message: "KMM is at work"})
	if result := pass(t.Context()); result.RequeueAfter != gate.Pause {
		t.Errorf("the next look is due after %v, want %v", result.RequeueAfter, gate.Pause)
	}
	if err := c.Get(t.Context(), key, &corev1.Pod{}); err != nil {
		t.Fatalf("the pod: %v, want it held", err)
	}
	r.gate.Set(nil)
	pass(t.Context())
	if err := c.Get(t.Context(), key, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod: %v, want it gone", err)
	}
}
