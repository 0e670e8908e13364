// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestCarriersReserveNothing: neither in a plain namespace, nor where a tenant's ResourceQuota
// wants every number, or a LimitRange has defaults. A pod that asks for something is refused by the
// kubelet of a full node.
func TestCarriersReserveNothing(t *testing.T) {
	quantity := resource.MustParse
	requests := corev1.ResourceList{corev1.ResourceRequestsCPU: quantity("0"), corev1.ResourceRequestsMemory: quantity("0"),
		corev1.ResourceRequestsEphemeralStorage: quantity("0")}
	limits := corev1.ResourceList{corev1.ResourceLimitsCPU: quantity("4"), corev1.ResourceLimitsMemory: quantity("4Gi"),
		corev1.ResourceLimitsEphemeralStorage: quantity("8Gi")}
	quota := func(hard corev1.ResourceList) *corev1.ResourceQuota {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{}}
		for name := range hard {
			q.Status.Used[name] = quantity("0")
		}
		return q
	}
	cases := map[string][]client.Object{
		"a plain namespace":                 nil,
		"a quota without room for requests": {quota(requests)},
		"a quota for limits":                {quota(limits)},
		"a LimitRange with defaults": {&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type:           corev1.LimitTypeContainer,
				DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: quantity("500m"), corev1.ResourceMemory: quantity("256Mi")},
				Default:        corev1.ResourceList{corev1.ResourceCPU: quantity("2"), corev1.ResourceMemory: quantity("2Gi")},
			}}}}},
	}
	e := env.Get(t)
	admin, operator := e.Admin(t), e.Client(t, e.Config(t, env.Operator))
	for name, given := range cases {
		t.Run(name, func(t *testing.T) {
			_, namespace := editor(t, e)
			for _, object := range given {
				object.SetNamespace(namespace)
				q, isQuota := object.(*corev1.ResourceQuota)
				var status corev1.ResourceQuotaStatus
				if isQuota {
					status = *q.Status.DeepCopy()
				}
				if err := admin.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
				if isQuota { // the quota controller's part
					q.Status = status
					if err := admin.Status().Update(t.Context(), q); err != nil {
						t.Fatal(err)
					}
				}
			}
			made(t, operator, carrier(t, namespace, delivery.ModeImageVolume))
		})
	}
}

// made creates a pod, which must get what it asks for, and that is nothing.
func made(t *testing.T, c client.Client, pod *corev1.Pod) {
	t.Helper()
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name, request := range containers[i].Resources.Requests {
				if !request.IsZero() {
					t.Errorf("container %s requests %s of %s", containers[i].Name, request.String(), name)
				}
			}
			if len(containers[i].Resources.Limits) != 3 {
				t.Errorf("container %s has the limits %v", containers[i].Name, containers[i].Resources.Limits)
			}
		}
	}
}
