// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestMessages holds what a Module says when its device plugin or DRA driver cannot be made.
func TestMessages(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "daemonsets"}, "nic-device-plugin",
		errors.New("exceeded quota"))
	refused := func(err error) *reasons.Problem { return problemOf("DaemonSet nic-device-plugin", err) }
	_, taken := conflict([]string{"fast", "slow"})
	_, free := conflict(nil)
	for _, tc := range []struct {
		name  string
		given *reasons.Problem
		then  string
	}{
		{
			"an object of the name is somebody else's", refused(foreignError{what: "ServiceAccount nic-device-plugin"}),
			"DevicesPending: Drover cannot create or update DaemonSet nic-device-plugin: " +
				"ServiceAccount nic-device-plugin exists and does not belong to this Module: delete or rename it",
		},
		{
			"the API server refuses", refused(fmt.Errorf("apply DaemonSet nic-device-plugin: %w", quota)),
			"DevicesPending: Drover cannot create or update DaemonSet nic-device-plugin: apply DaemonSet nic-device-plugin: " +
				`daemonsets.apps "nic-device-plugin" is forbidden: exceeded quota`,
		},
		{"a failure that passes by itself", refused(errors.New("connection refused")), ""},
		{
			"DeviceClasses are somebody else's", taken,
			"DeviceClassConflict: DeviceClasses fast, slow exist and do not belong to this Module: " +
				"choose other names in spec.dra.deviceClasses, or delete them",
		},
		{"all DeviceClasses are the Module's", free, ""},
		{
			"the cluster does not serve DRA", &reasons.Problem{Reason: v1beta1.ReasonUnsupported, Message: unsupported},
			"Unsupported: spec.dra: this cluster's API server did not serve resource.k8s.io/v1 when the operator started; " +
				"DRA drivers need Kubernetes 1.34 or newer",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if tc.given != nil {
				got = tc.given.Reason + ": " + tc.given.Message
			}
			if got != tc.then {
				t.Errorf("got  %s\nwant %s", got, tc.then)
			}
		})
	}
}
