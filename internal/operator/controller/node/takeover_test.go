// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestTargetLabelsStayWhileAPluginGoesByThem: KMM's plugin pods leave a node without them.
func TestTargetLabelsStayWhileAPluginGoesByThem(t *testing.T) {
	const target = "kmm.node.kubernetes.io/team.nic" + v1beta1.DevicePluginTargetSuffix
	have := map[string]string{target: "", "kmm.node.kubernetes.io/team.nic.ready": "", "other.example.com/a.device-plugin-target": ""}
	for name, test := range map[string]struct {
		selector     map[string]string
		seen         int64
		without, all bool
	}{
		"KMM's DaemonSet as it was":                {selector: map[string]string{target: ""}, seen: 2, all: true},
		"taken over, and nobody has acted on that": {seen: 1, all: true},
		"taken over":                 {seen: 2},
		"no DaemonSet of any plugin": {without: true},
	} {
		t.Run(name, func(t *testing.T) {
			ds := &appsv1.DaemonSet{}
			ds.Namespace, ds.Name, ds.Generation = "team", "nic-device-plugin-x7k2p", 2
			ds.Labels = map[string]string{v1beta1.RoleLabel: v1beta1.RoleDevicePlugin, v1beta1.ModuleNameLabel: "nic"}
			ds.Spec.Template.Spec.NodeSelector, ds.Status.ObservedGeneration = test.selector, test.seen
			b := fake.NewClientBuilder()
			if !test.without {
				b = b.WithObjects(ds)
			}
			got, err := chosen(t.Context(), b.Build(), have)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			if test.all {
				want[target] = ""
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if patch, err := labelPatch(map[string]string{target: ""}, got); err != nil || (patch == nil) != test.all {
				t.Errorf("patch %s, error %v", patch, err)
			}
		})
	}
}
