// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// claimed is a ResourceClaim by which a pod has a device of the driver, wherever it runs.
func (s *scenario) claimed(driver string) *resourcev1.ResourceClaim {
	s.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "claim"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "d",
		Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "any.example.com"}}}
	s.must(shared.Admin.Create(s.Context(), claim))
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	claim.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Request: "d", Driver: driver, Pool: "p",
		Device: "d0"}}
	// A user that the cluster does not know: its pod controller would free the claim of a pod that is
	// not there.
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "example.com", Resource: "users", Name: "u", UID: "u1"}}
	s.must(shared.Admin.Status().Update(s.Context(), claim))
	return claim
}

// nothingMade objects while something is left that was made for the Module in its namespace.
func (s *scenario) nothingMade(ctx context.Context) error {
	daemonSets, accounts, pods, images := &appsv1.DaemonSetList{}, &corev1.ServiceAccountList{}, &corev1.PodList{}, &v1alpha1.ModuleImageList{}
	for _, list := range []client.ObjectList{daemonSets, accounts, pods, images} {
		if err := shared.Admin.List(ctx, list, client.InNamespace(s.key.Namespace), client.HasLabels{v1beta1.ModuleNameLabel}); err != nil {
			return err
		}
	}
	left := []string{}
	for _, d := range daemonSets.Items {
		left = append(left, "DaemonSet "+d.Name)
	}
	for _, a := range accounts.Items {
		left = append(left, "ServiceAccount "+a.Name)
	}
	for _, p := range pods.Items {
		left = append(left, "pod "+p.Name)
	}
	for _, i := range images.Items {
		left = append(left, "ModuleImage "+i.Name)
	}
	if len(left) > 0 {
		return fmt.Errorf("left: %v", left)
	}
	return nil
}

// staysUnder waits until nothing but the claim keeps the deleted Module, and checks that its driver
// is the one of before.
func (s *scenario) staysUnder(claim *resourcev1.ResourceClaim, before *appsv1.DaemonSet) {
	s.Helper()
	s.eventually("the garbage collector is done with the Module, which waits for the claim", func(ctx context.Context) error {
		m := &v1beta1.Module{}
		if err := shared.Admin.Get(ctx, s.key, m); err != nil {
			return err
		}
		if !slices.Equal(m.Finalizers, []string{v1beta1.ModuleFinalizer}) {
			return fmt.Errorf("finalizers %v", m.Finalizers)
		}
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonInUse, claim.Name)
	})
	set, err := s.daemonSet(s.Context())
	s.must(err)
	if set.UID != before.UID || set.DeletionTimestamp != nil || set.Status.NumberReady != 1 {
		s.Errorf("the driver is not what it was: %+v %+v", set.ObjectMeta, set.Status)
	}
	s.must(shared.Admin.Get(s.Context(), client.ObjectKeyFromObject(set), &corev1.ServiceAccount{}))
}

// TestLifecycleDeletionModes: whatever way a Module is deleted, the cluster's garbage collector
// takes no driver away under a claim, and nothing is left behind.
func TestLifecycleDeletionModes(t *testing.T) {
	for _, mode := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground,
		metav1.DeletePropagationOrphan} {
		t.Run(string(mode), func(t *testing.T) {
			s := given(t, "delete-"+map[metav1.DeletionPropagation]string{
				metav1.DeletePropagationForeground: "fg", metav1.DeletePropagationBackground: "bg", metav1.DeletePropagationOrphan: "orphan",
			}[mode])
			const node = "hollow-0"
			driver := s.key.Namespace + ".example.com"
			underClaim, err := shared.ServesDRA()
			s.must(err)
			s.create(s.on(node), func(m *v1beta1.Module) {
				if !underClaim { // the release is too old for claims of devices
					withPlugin("registry.example.com/plugin:1")(m)
					return
				}
				m.Spec.DRA = &v1beta1.DRASpec{DriverName: driver, Container: v1beta1.WorkloadContainer{Image: "registry.example.com/driver:1"}}
			})
			s.converged(each([]string{node}, once))
			var before *appsv1.DaemonSet
			s.eventually("the driver runs", func(ctx context.Context) (err error) {
				if before, err = s.daemonSet(ctx); err == nil && before.Status.NumberReady != 1 {
					err = fmt.Errorf("%d ready pods", before.Status.NumberReady)
				}
				return err
			})
			var claim *resourcev1.ResourceClaim
			if underClaim {
				claim = s.claimed(driver)
			}

			s.must(shared.Admin.Delete(s.Context(), s.module(), client.PropagationPolicy(mode)))

			if underClaim {
				s.staysUnder(claim, before)
				s.must(kernels(s.Context(), s.kernelModule, each([]string{node}, once)))
				claim.Status.ReservedFor = nil
				s.must(shared.Admin.Status().Update(s.Context(), claim))
			}

			s.eventually("all of the Module is gone", func(ctx context.Context) error { return errors.Join(gone(ctx, s.key), s.nothingMade(ctx)) })
			s.journalIs(each([]string{node}, tally{Loads: 1, Unloads: 1}))
		})
	}
}
