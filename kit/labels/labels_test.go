// SPDX-License-Identifier: Apache-2.0

package labels_test

import (
	"maps"
	"testing"

	"github.com/drover-project/drover/kit/labels"
)

// TestLabelsAreContract: pods of others select nodes by these.
func TestLabelsAreContract(t *testing.T) {
	for got, want := range map[string]string{
		labels.Ready("ns", "nic"):             "kmm.node.kubernetes.io/ns.nic.ready",
		labels.DevicePluginReady("ns", "nic"): "kmm.node.kubernetes.io/ns.nic.device-plugin-ready",
		labels.VersionReady("ns", "nic"):      "kmm.node.kubernetes.io/ns.nic.version.ready",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	other := map[string]string{"rack": "7"}
	got := labels.WhereReady("ns", "nic", other)
	if want := map[string]string{"rack": "7", "kmm.node.kubernetes.io/ns.nic.ready": ""}; !maps.Equal(got, want) || len(other) != 1 {
		t.Errorf("got %v, want %v; the other labels are %v", got, want, other)
	}
	if !labels.IsReady(got, "ns", "nic") || labels.IsReady(got, "ns", "gpu") || labels.IsReady(nil, "ns", "nic") {
		t.Error("a node says ready when it is not, or the other way round")
	}
}
