// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
)

// TestWhomAPolicyConcerns: those that the controller of orders names and, where it names not all,
// those that do not have the order.
func TestWhomAPolicyConcerns(t *testing.T) {
	denied := func(node string) v1beta1.ModuleProblem {
		return v1beta1.ModuleProblem{Part: v1beta1.ProblemDeliveries, Node: node, Reason: v1beta1.ReasonPolicyDenied, Message: node}
	}
	refused := v1beta1.ModuleProblem{Part: v1beta1.ProblemDeliveries, Node: "a", Reason: v1beta1.ReasonDeliveryRefused}
	cases := map[string]struct {
		told    []v1beta1.ModuleProblem
		ordered bool
		then    string
	}{
		"nobody":                           {},
		"the node":                         {told: []v1beta1.ModuleProblem{denied("a")}, then: "a"},
		"another node":                     {told: []v1beta1.ModuleProblem{denied("b")}},
		"nodes that are not named":         {told: []v1beta1.ModuleProblem{denied("b"), denied(v1beta1.OtherNodes)}, then: v1beta1.OtherNodes},
		"but the node has the order":       {told: []v1beta1.ModuleProblem{denied(v1beta1.OtherNodes)}, ordered: true},
		"but something else is said of it": {told: []v1beta1.ModuleProblem{refused, denied(v1beta1.OtherNodes)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic"}, Spec: v1beta1.ModuleSpec{
				ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
					Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"}, KernelMappings: []v1beta1.KernelMapping{{Regexp: ".", ContainerImage: "r/nic:1"}},
				}}}}
			m.Status.Problems = tc.told
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			node.Status.NodeInfo.KernelVersion = "6.1"
			s := &Scene{Module: m, Desired: desired.New(m).With(desired.Images{}), Deliveries: Deliveries(m, nil),
				Configs: map[string]*v1beta1.NodeModulesConfig{}}
			if a := s.Wants(node); tc.ordered {
				s.Configs["a"] = &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1beta1.NodeModulesConfigSpec{
					Modules: []v1beta1.NodeModuleSpec{{ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: "nic"}, Config: a.State.Config}}}}
			}
			got := ""
			if known, _ := s.Node(node); known.Delivery != nil && known.Delivery.Reason == v1beta1.ReasonPolicyDenied {
				got = known.Delivery.Message
			}
			if got != tc.then {
				t.Errorf("denied by %q, want %q", got, tc.then)
			}
			if part, _ := s.part(node); part.Paused != (tc.then != "") {
				t.Errorf("paused: %v", part.Paused)
			}
		})
	}
}
