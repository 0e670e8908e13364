// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
)

func TestWhomAStrikeConcerns(t *testing.T) {
	began := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	item := v1beta1.ModuleItem{Namespace: "team", Name: "nic"}
	config := func(node, delivery string, strike *v1beta1.Strike) *v1beta1.NodeModulesConfig {
		c := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: node}}
		if delivery != "" {
			c.Spec.Modules = []v1beta1.NodeModuleSpec{{ModuleItem: item, Delivery: &v1beta1.Delivery{ID: delivery}}}
		}
		if strike != nil {
			c.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "nic", Strike: strike}}
		}
		return c
	}
	configs := map[string]*v1beta1.NodeModulesConfig{
		"struck":  config("struck", "d1", &v1beta1.Strike{Delivery: "d1", Build: "nic (build 1)", Began: metav1.NewTime(began)}),
		"ordered": config("ordered", "d1", nil),
		"before":  config("before", "d0", nil),
		"new":     config("new", "", nil),
		"gone":    config("gone", "d1", &v1beta1.Strike{Delivery: "d1", Build: "nic (build 1)", Began: metav1.NewTime(began)}),
	}
	var nodes []*corev1.Node
	for name := range configs {
		if name != "gone" {
			nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic"}}
	told := func(m *v1beta1.Module, delivery string) map[string]bool {
		held, got := Judge(m, nodes, configs), map[string]bool{}
		for i := range nodes {
			name := nodes[i].Name
			p := held.On(&desired.State{Delivery: delivery}, status.EntryOf(configs[name], "team", "nic"))
			if p == nil {
				continue
			}
			got[name] = true
			want := reasons.Problem{
				Reason:  v1beta1.ReasonQuarantined,
				Message: "node struck went down with nic (build 1), so no further node gets it: ship another build, or run drover retry nic -n team",
			}
			if diff := cmp.Diff(want, *p); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		return got
	}
	if diff := cmp.Diff(map[string]bool{"struck": true, "before": true, "new": true}, told(m, "d1")); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if got := told(m, "d2"); len(got) != 0 {
		t.Errorf("another delivery is asked for, and %v are told", got)
	}
	retried := m.DeepCopy()
	retried.Annotations = map[string]string{v1beta1.RetryAnnotation: began.Add(time.Hour).Format(time.RFC3339)}
	if got := told(retried, "d1"); len(got) != 0 {
		t.Errorf("somebody asked to go on, and %v are told", got)
	}
	delete(configs, "struck")
	if got := told(m, "d1"); len(got) != 0 {
		t.Errorf("the node is gone, and %v are told", got)
	}
}
