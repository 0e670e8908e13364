// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/claims"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestADriverStaysWhilePodsHaveItsDevices: without its driver, a pod that has a device could not
// end.
func TestADriverStaysWhilePodsHaveItsDevices(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	namespace := e.Namespace(t)
	m := driverModule(namespace)
	m.Spec.DRA.DriverName = namespace + ".example.com"
	create(t, admin, m)
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic-dra"}}
	exists(t, admin, daemonSet, true)
	claim := claimOf(t, admin, namespace, m.Spec.DRA.DriverName)

	// Another driver has to wait.
	driver := m.Spec.DRA.DriverName
	change(t, admin, m, func() { m.Spec.DRA.DriverName = "other." + driver })
	served(t, admin, namespace, "another")
	exists(t, admin, daemonSet, true)
	if got := daemonSet.Annotations[claims.DriverAnnotation]; got != driver {
		t.Errorf("under claims, the driver is replaced by %s", got)
	}

	// A device plugin takes its place, and both stand for now.
	change(t, admin, m, func() {
		m.Spec.DRA = nil
		m.Spec.DevicePlugin = module().Spec.DevicePlugin
	})
	exists(t, admin, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic-device-plugin"}}, true)
	served(t, admin, namespace, "other")
	exists(t, admin, daemonSet, true)
	if daemonSet.DeletionTimestamp != nil {
		t.Error("the driver is being deleted")
	}

	claim.Status.ReservedFor = nil
	if err := admin.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, daemonSet, false)
}

// TestADriverThatCannotLeaveSaysWhy: a Module without a kernel module is being deleted, and pods
// have devices of its driver.
func TestADriverThatCannotLeaveSaysWhy(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	namespace := e.Namespace(t)
	m := driverModule(namespace)
	m.Spec.DRA.DriverName, m.Spec.ModuleLoader = namespace+".example.com", nil
	m.Finalizers = []string{kmmv1beta1.ModuleFinalizer}
	create(t, admin, m)
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic-dra"}}
	exists(t, admin, daemonSet, true)
	claim := claimOf(t, admin, namespace, m.Spec.DRA.DriverName)
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	told := func(when, want string) {
		t.Helper()
		eventually(t, when, func(ctx context.Context) (bool, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(m), m)
			for _, p := range m.Status.Problems {
				if p.Part == kmmv1beta1.ProblemPlugin {
					return p.Reason == kmmv1beta1.ReasonInUse && strings.Contains(p.Message, want), err
				}
			}
			return want == "", err
		})
	}
	told("the Module says who holds the driver", "pods hold devices of "+m.Spec.DRA.DriverName)
	claim.Status.ReservedFor = nil
	if err := admin.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, daemonSet, false)
	told("the Module says nothing any more", "")
	change(t, admin, m, func() { m.Finalizers = nil })
}

// claimOf is a claim by which a pod has a device of a driver.
func claimOf(t *testing.T, admin client.Client, namespace, driver string) *resourcev1.ResourceClaim {
	t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claim"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "d",
		Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "any.example.com"}}}
	create(t, admin, claim)
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	claim.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Request: "d", Driver: driver, Pool: "p",
		Device: "d0"}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "p1"}}
	if err := admin.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestADriverLeavesWithItsModule: the DaemonSet of a Module that is being deleted stays for the
// pods that leave one by one.
func TestADriverLeavesWithItsModule(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	namespace := e.Namespace(t)
	m := driverModule(namespace, namespace+".class")
	m.Finalizers = []string{kmmv1beta1.ModuleFinalizer}
	create(t, admin, m)
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic-dra"}}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: namespace + ".class"}}
	exists(t, admin, daemonSet, true)
	exists(t, admin, class, true)
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, class, false)
	exists(t, admin, daemonSet, true)
	if daemonSet.DeletionTimestamp != nil {
		t.Error("the driver is being deleted")
	}

	// A DeviceClass of a Module that went without its finalizer's leave goes too.
	change(t, admin, m, func() { m.Finalizers = nil })
	orphan := driverModule(namespace, namespace+".orphan")
	orphan.Name = "orphan"
	create(t, admin, orphan)
	class.Name = namespace + ".orphan"
	exists(t, admin, class, true)
	if err := admin.Delete(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, class, false)
}
