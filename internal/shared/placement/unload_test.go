// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/placement"
)

const upgrade = "example.com/upgrade"

// TestTaintsThatAskForAnUnload: only listed ones that the Module does not tolerate ask for it, and
// of a node that follows the Module, only they take it away.
func TestTaintsThatAskForAnUnload(t *testing.T) {
	listed := placement.UnloadTaints{"other", upgrade}
	ordering, dedicated := taint(upgrade, "true", corev1.TaintEffectNoSchedule), taint("dedicated", "", corev1.TaintEffectNoSchedule)
	cordoned := taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)
	tolerates := func(m *v1beta1.Module) {
		m.Spec.Tolerations = []corev1.Toleration{{Key: upgrade, Operator: corev1.TolerationOpExists}}
	}
	for name, tc := range map[string]struct {
		listed placement.UnloadTaints
		taints []corev1.Taint
		change func(*v1beta1.Module)
		// asks is the key that does; then: a node that follows is to hold the kernel module; out: only
		// taints that ask for it keep it out.
		asks string
		then bool
		out  bool
	}{
		"no taint":          {listed: listed, then: true},
		"nothing is listed": {taints: []corev1.Taint{ordering}, then: true},
		"listed":            {listed: listed, taints: []corev1.Taint{ordering}, asks: upgrade, out: true},
		"another one":       {listed: listed, taints: []corev1.Taint{dedicated}, then: true},
		"a cordon":          {listed: listed, taints: []corev1.Taint{cordoned}, then: true},
		"a cordon, even if it was listed": {
			listed: placement.UnloadTaints{corev1.TaintNodeUnschedulable}, taints: []corev1.Taint{cordoned}, then: true,
		},
		"beside a cordon":              {listed: listed, taints: []corev1.Taint{cordoned, ordering}, asks: upgrade, out: true},
		"beside one that keeps it out": {listed: listed, taints: []corev1.Taint{dedicated, ordering}, asks: upgrade},
		"with NoExecute": {
			listed: listed, taints: []corev1.Taint{taint(upgrade, "", corev1.TaintEffectNoExecute)}, asks: upgrade, out: true,
		},
		"with PreferNoSchedule": {
			listed: listed, taints: []corev1.Taint{taint(upgrade, "", corev1.TaintEffectPreferNoSchedule)}, then: true,
		},
		"tolerated": {listed: listed, taints: []corev1.Taint{ordering}, change: tolerates, then: true},
		"one of two, only": {
			listed: listed, taints: []corev1.Taint{ordering, taint("other", "", corev1.TaintEffectNoExecute)},
			change: tolerates, asks: "other", out: true,
		},
		"the Module's own startup taint": {
			listed: listed, taints: []corev1.Taint{ordering}, change: func(m *v1beta1.Module) { m.Spec.StartupTaint = upgrade }, then: true,
		},
		"of a node that is not selected": {
			listed: listed, taints: []corev1.Taint{ordering}, asks: upgrade,
			change: func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{"gpu": "no"} },
		},
		"where nothing is loaded": {
			listed: listed, taints: []corev1.Taint{ordering}, asks: upgrade, change: func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{Spec: v1beta1.ModuleSpec{Selector: map[string]string{"gpu": "yes"}, ModuleLoader: &v1beta1.ModuleLoaderSpec{}}}
			if tc.change != nil {
				tc.change(m)
			}
			tolerations := len(m.Spec.Tolerations)
			n := node(map[string]string{"gpu": "yes"}, tc.taints...)
			asks := ""
			if taint := tc.listed.Asks(m, n); taint != nil {
				asks = taint.Key
			}
			if wanted, out := tc.listed.Wanted(m, n, true), tc.listed.KeepOut(m, n); asks != tc.asks || wanted != tc.then || out != tc.out {
				t.Errorf("asks %q, wanted %t, out %t", asks, wanted, out)
			}
			if tc.asks != "" && tc.listed.Wanted(m, n, false) || len(m.Spec.Tolerations) != tolerations {
				t.Error("it is loaded where it would be unloaded again, or tolerates more")
			}
		})
	}
}

func TestParseUnloadTaints(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, " , ": nil, "a": {"a"},
		"amd-network-driver-upgrade, example.com/up.grade_1": {"amd-network-driver-upgrade", "example.com/up.grade_1"},
	} {
		if got, err := placement.ParseUnloadTaints(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, entry := range map[string]string{
		"a,b c": `"b c"`, "a=true": `"a=true"`, "a:NoSchedule": `"a:NoSchedule"`, "example.com/*": `"example.com/*"`, "/a": `"/a"`,
		"node.kubernetes.io/unschedulable": `"node.kubernetes.io/unschedulable"`, "a,kubernetes.io/x": `"kubernetes.io/x"`,
		"node.cloudprovider.kubernetes.io/uninitialized": `"node.cloudprovider.kubernetes.io/uninitialized"`,
	} {
		if got, err := placement.ParseUnloadTaints(text); err == nil || !strings.HasPrefix(err.Error(), entry+": ") || got != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
