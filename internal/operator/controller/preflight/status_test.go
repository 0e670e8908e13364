// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta2"
)

// TestStatusesInTheFormOfV1beta1: by "namespace/name" and by name, as upstream; of two Modules with
// one name, the worst.
func TestStatusesInTheFormOfV1beta1(t *testing.T) {
	found := []finding{
		{module: types.NamespacedName{Namespace: "a", Name: "nic"}, status: v1beta2.VerificationFailure},
		{module: types.NamespacedName{Namespace: "b", Name: "nic"}, status: v1beta2.VerificationSuccess},
		{module: types.NamespacedName{Namespace: "b", Name: "gpu"}, status: v1beta2.VerificationInProgress},
	}
	got := map[string]v1beta2.VerificationStatus{}
	for key, one := range statusOf(&v1beta2.PreflightValidation{}, found, time.Unix(0, 0)).CRStatuses {
		got[key] = one.VerificationStatus
	}
	want := map[string]v1beta2.VerificationStatus{
		"a/nic": v1beta2.VerificationFailure, "b/nic": v1beta2.VerificationSuccess, "nic": v1beta2.VerificationFailure,
		"b/gpu": v1beta2.VerificationInProgress, "gpu": v1beta2.VerificationInProgress,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("crStatuses (-want +got):\n%s", diff)
	}
}
