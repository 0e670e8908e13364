// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/placement"
)

func node(labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
}

func taint(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

func TestWanted(t *testing.T) {
	gpu := map[string]string{"gpu": "yes", corev1.LabelOSStable: "linux"}
	dedicated := taint("dedicated", "gpu", corev1.TaintEffectNoSchedule)
	cases := map[string]struct {
		selector    map[string]string
		tolerations []corev1.Toleration
		node        *corev1.Node
		follows     bool
		then        bool
	}{
		"all labels match":                            {selector: map[string]string{"gpu": "yes"}, node: node(gpu), then: true},
		"one of two labels is missing":                {selector: map[string]string{"gpu": "yes", "zone": "a"}, node: node(gpu)},
		"the label has another value":                 {selector: map[string]string{"gpu": "no"}, node: node(gpu)},
		"an empty selector takes every Linux node":    {node: node(gpu), then: true},
		"a node without the os label counts as Linux": {node: node(nil), then: true},
		"a Windows node":                              {node: node(map[string]string{corev1.LabelOSStable: "windows"})},
		"a virtual-kubelet node by its label":         {node: node(map[string]string{"type": "virtual-kubelet"})},
		"a virtual-kubelet node by its taint": {
			node:        node(gpu, taint("virtual-kubelet.io/provider", "x", corev1.TaintEffectNoSchedule)),
			tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
		"a Windows node that follows is not wanted either": {
			node: node(map[string]string{corev1.LabelOSStable: "windows"}), follows: true,
		},
		"a taint that nobody tolerates stops the first load": {node: node(gpu, dedicated)},
		"the same taint does not matter where the module is": {node: node(gpu, dedicated), follows: true, then: true},
		"tolerated by value": {
			node: node(gpu, dedicated), then: true,
			tolerations: []corev1.Toleration{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
		},
		"tolerated for another effect only": {
			node:        node(gpu, taint("dedicated", "gpu", corev1.TaintEffectNoExecute)),
			tolerations: []corev1.Toleration{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
		},
		"one taint tolerated, another not": {
			node:        node(gpu, dedicated, taint("other", "", corev1.TaintEffectNoSchedule)),
			tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
		},
		"a toleration of everything": {
			node: node(gpu, dedicated), then: true,
			tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
		"PreferNoSchedule is a wish, not a rule": {
			node: node(gpu, taint("dedicated", "", corev1.TaintEffectPreferNoSchedule)), then: true,
		},
		"cordoned, not ready, unreachable and under pressure are states, not owners": {
			node: node(gpu,
				taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule),
				taint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoExecute),
				taint(corev1.TaintNodeUnreachable, "", corev1.TaintEffectNoExecute),
				taint(corev1.TaintNodeMemoryPressure, "", corev1.TaintEffectNoSchedule),
				taint(corev1.TaintNodeDiskPressure, "", corev1.TaintEffectNoSchedule),
				taint(corev1.TaintNodePIDPressure, "", corev1.TaintEffectNoSchedule),
				taint(corev1.TaintNodeNetworkUnavailable, "", corev1.TaintEffectNoSchedule)),
			then: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{Spec: v1beta1.ModuleSpec{Selector: tc.selector, Tolerations: tc.tolerations}}
			if got := placement.UnloadTaints(nil).Wanted(m, tc.node, tc.follows); got != tc.then {
				t.Errorf("Wanted = %t, want %t", got, tc.then)
			}
		})
	}
}

func TestReady(t *testing.T) {
	n := node(nil)
	if placement.Ready(n) {
		t.Error("a node that has not reported is not Ready")
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if placement.Ready(n) {
		t.Error("Unknown is not Ready")
	}
	n.Status.Conditions[0].Status = corev1.ConditionTrue
	if !placement.Ready(n) {
		t.Error("True is Ready")
	}
}

// TestStartupTaintDoesNotKeepOutWhatTakesItOff: only the Module that names it, and only that taint.
func TestStartupTaintDoesNotKeepOutWhatTakesItOff(t *testing.T) {
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/starting", Effect: corev1.TaintEffectNoExecute}}}}
	m := &v1beta1.Module{Spec: v1beta1.ModuleSpec{Tolerations: []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}}}
	if placement.UnloadTaints(nil).Wanted(m, node, false) {
		t.Error("another Module's startup taint is tolerated")
	}
	m.Spec.StartupTaint = "example.com/starting"
	if !placement.UnloadTaints(nil).Wanted(m, node, false) {
		t.Error("its own startup taint keeps the Module out")
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
	if placement.UnloadTaints(nil).Wanted(m, node, false) || len(m.Spec.Tolerations) != 1 {
		t.Error("more than the startup taint is tolerated")
	}
}
