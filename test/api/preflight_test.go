// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestPreflightAdmission creates a PreflightValidation for each kernel, in both versions, and
// updates an accepted one to it.
func TestPreflightAdmission(t *testing.T) {
	admin := env.Get(t).Admin(t)
	const field = "spec.kernelVersion"
	kernels := map[string]bool{
		"6.0.15-300.fc37.x86_64": true, "6.1.0-44-amd64": true, "5.4.0-104-generic": true, "6.1.0+": true, "6.12.57+deb12-amd64": true,
		"6.6.0-rc1~x": true,
		"":            false, "test": false, "6.1": false, "6..1": false, "../../6.1.0": false, "6.1.0/x": false, "6.1.0 x": false,
		"6.1.0\n":                           false,
		"6.1.0-" + strings.Repeat("x", 128): false,
	}
	for kernel, fine := range kernels {
		var want []string
		if !fine {
			want = []string{field}
		}
		spec := v1beta2.PreflightValidationSpec{KernelVersion: kernel}
		check(t, admin.Create(t.Context(), &v1beta2.PreflightValidation{ObjectMeta: metav1.ObjectMeta{Name: "pf"}, Spec: spec}, client.DryRunAll),
			want...)
		old := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "pf"},
			"spec": map[string]any{"kernelVersion": kernel}}}
		old.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("PreflightValidation"))
		check(t, admin.Create(t.Context(), old, client.DryRunAll), want...)
	}
	have := &v1beta2.PreflightValidation{ObjectMeta: metav1.ObjectMeta{GenerateName: "pf-"},
		Spec: v1beta2.PreflightValidationSpec{KernelVersion: "6.1.0"}}
	check(t, admin.Create(t.Context(), have))
	for kernel, fine := range kernels {
		changed := have.DeepCopy()
		if changed.Spec.KernelVersion = kernel; !fine {
			check(t, admin.Update(t.Context(), changed, client.DryRunAll), field)
		}
	}
	check(t, admin.Delete(t.Context(), have))
}

// TestPreflightVersionsHoldTheSame: what is written in one version is read in the other, spec and
// status, with no webhook.
func TestPreflightVersionsHoldTheSame(t *testing.T) {
	admin := env.Get(t).Admin(t)
	kind := func(version string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("kmm.sigs.x-k8s.io/" + version)
		u.SetKind("PreflightValidation")
		return u
	}
	spec := map[string]any{"kernelVersion": "6.1.0-44-amd64", "pushBuiltImage": true, "labels": map[string]any{"a": "b"}}
	one := func() map[string]any {
		return map[string]any{
			"verificationStatus": "Failure", "verificationStage": "Done", "statusReason": "why", "lastTransitionTime": "2026-01-02T03:04:05Z",
		}
	}
	item := one()
	item["namespace"], item["name"] = "ns", "nic"
	status := map[string]any{"modules": []any{item}, "crStatuses": map[string]any{"ns/nic": one()}}
	for written, read := range map[string]string{"v1beta1": "v1beta2", "v1beta2": "v1beta1"} {
		object := kind(written)
		object.SetGenerateName("pf-")
		object.Object["spec"] = spec
		check(t, admin.Create(t.Context(), object))
		object.Object["status"] = status
		check(t, admin.Status().Update(t.Context(), object))
		got := kind(read)
		check(t, admin.Get(t.Context(), client.ObjectKeyFromObject(object), got))
		for part, want := range map[string]any{"spec": spec, "status": status} {
			if diff := cmp.Diff(want, got.Object[part]); diff != "" {
				t.Errorf("%s written as %s and read as %s (-want +got):\n%s", part, written, read, diff)
			}
		}
		check(t, admin.Delete(t.Context(), object))
	}
}
