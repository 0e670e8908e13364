// SPDX-License-Identifier: Apache-2.0

package nodemarks_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/nodemarks"
)

// TestLabels: those of a Module that is there, those of one that is gone, and others'.
func TestLabels(t *testing.T) {
	there := nodemarks.Speaking([]types.NamespacedName{{Namespace: "team", Name: "nic"}})
	gone := nodemarks.Speaking([]types.NamespacedName{{Namespace: "team", Name: "gone"}})
	gone["kmm.node.kubernetes.io/nic.ready"] = true // of an older KMM, without a namespace
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		"kubernetes.io/os": "linux", "example.com/team.nic.ready": "", v1beta1.BakedLabel("d1"): "",
		// Users drive upgrades by these, also of a Module whose name ends like a label of ours.
		v1beta1.VersionModulePrefix + "team.nic": "v1", v1beta1.VersionModulePrefix + "team.nic.ready": "v1",
	}}}
	for label := range there {
		node.Labels[label] = ""
	}
	for label := range gone {
		node.Labels[label] = ""
	}
	for label := range there {
		if !nodemarks.Kept(label) {
			t.Errorf("%s is put on nodes for a Module, and is not kept", label)
		}
	}
	gotThere, gotGone := nodemarks.Labels(node, there)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(there)), gotThere); diff != "" {
		t.Errorf("of a Module that is there (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(gone)), gotGone); diff != "" {
		t.Errorf("of Modules that are gone (-want +got):\n%s", diff)
	}
}
