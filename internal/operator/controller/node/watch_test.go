// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/watch"
)

func TestLabelsConcernTheModulesThatReadThem(t *testing.T) {
	modules := []*v1beta1.Module{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic"}, Spec: v1beta1.ModuleSpec{Selector: map[string]string{"nic": "yes"}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gpu"}, Spec: v1beta1.ModuleSpec{Selector: map[string]string{"gpu": "yes"}}},
	}
	cases := map[string]struct {
		change func(labels map[string]string)
		then   []string
	}{
		"the ready label that the labeler writes": {change: func(l map[string]string) { l[v1beta1.ReadyLabel("team", "nic")] = "" }},
		"one that a Module selects by":            {change: func(l map[string]string) { l["gpu"] = "yes" }, then: []string{"gpu"}},
		"one that it selected by":                 {change: func(l map[string]string) { delete(l, "nic") }, then: []string{"nic"}},
		"the version of an ordered upgrade": {
			change: func(l map[string]string) { l[v1beta1.VersionWorkerLabel("team", "nic")] = "2" }, then: []string{"nic"},
		},
		"the operating system": {change: func(l map[string]string) { l[corev1.LabelOSStable] = "windows" }, then: []string{"nic"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"nic": "yes"}}}
			now := before.DeepCopy()
			test.change(now.Labels)
			got := map[string]bool{}
			for _, m := range modules {
				if labelsConcern(m, before, now) {
					got[m.Name] = true
				}
			}
			if diff := cmp.Diff(test.then, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("Modules (-want +got):\n%s", diff)
			}
			if watch.NodeChanged(before, now) {
				t.Error("labels count as a change for everybody")
			}
		})
	}
}
