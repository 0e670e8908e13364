// SPDX-License-Identifier: Apache-2.0

package startup

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/placement"
)

const key, boot = "example.com/starting", "boot-1"

func taintedNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a-uid", Labels: map[string]string{"pool": "x"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: key, Effect: corev1.TaintEffectNoSchedule}, {Key: "other", Value: "1", Effect: corev1.TaintEffectPreferNoSchedule},
			{Key: key, Value: "x", Effect: corev1.TaintEffectNoExecute},
		}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot, OperatingSystem: "linux"}},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

// waiting is a Module that names the taint.
func waiting(name string, change ...func(*v1beta1.Module)) v1beta1.Module {
	m := v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       v1beta1.ModuleSpec{Selector: map[string]string{"pool": "x"}, StartupTaint: key, ModuleLoader: &v1beta1.ModuleLoaderSpec{}},
	}
	for _, f := range change {
		f(&m)
	}
	return m
}

// reports says that these Modules are live in a boot, as ordered.
func reports(boot string, names ...string) *v1beta1.NodeModulesConfig {
	c := &v1beta1.NodeModulesConfig{}
	for _, name := range names {
		item := v1beta1.ModuleItem{Namespace: "ns", Name: name}
		c.Spec.Modules = append(c.Spec.Modules, v1beta1.NodeModuleSpec{ModuleItem: item})
		c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{ModuleItem: item, BootID: boot, Observed: &v1beta1.ObservedModule{}})
	}
	return c
}

// noPolicies is a cache without ModulePolicies.
type noPolicies struct{ client.Client }

func (noPolicies) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.ModulePolicyList); !ok {
		return fmt.Errorf("it lists %T", list)
	}
	return nil
}

func TestWhoKeepsAStartupTaint(t *testing.T) {
	plugin := func(m *v1beta1.Module) { m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{} }
	unusable := reports(boot, "a")
	unusable.Status.Modules[0].Observed.Unusable = true
	label := func(l string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels[l] = "" } }
	taints, err := modulepolicy.ParseTaints("ns:" + key)
	if err != nil {
		t.Fatal(err)
	}
	c := New(noPolicies{}, taints, placement.UnloadTaints{"upgrade"}, nil)
	tenant := func(m *v1beta1.Module) { m.Namespace = "tenant" }
	cases := map[string]struct {
		node    *corev1.Node
		config  *v1beta1.NodeModulesConfig
		modules []v1beta1.Module
		off     bool
	}{
		"only one that may not name it": {modules: []v1beta1.Module{waiting("a", tenant, func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil })}},
		"one that may not name it is not ready": {config: reports(boot, "a"), off: true,
			modules: []v1beta1.Module{waiting("a"), waiting("b", tenant)}},
		"no Module names it": {config: reports(boot, "a"),
			modules: []v1beta1.Module{waiting("a", func(m *v1beta1.Module) { m.Spec.StartupTaint = "" })}},
		"nothing is known": {modules: []v1beta1.Module{waiting("a")}},
		"live":             {config: reports(boot, "a"), modules: []v1beta1.Module{waiting("a")}, off: true},
		"live in another boot": {
			config: reports("boot-0", "a"), modules: []v1beta1.Module{waiting("a")},
		},
		"live, and not usable": {config: unusable, modules: []v1beta1.Module{waiting("a")}},
		"one of two":           {config: reports(boot, "a"), modules: []v1beta1.Module{waiting("a"), waiting("b")}},
		"two of two":           {config: reports(boot, "a", "b"), modules: []v1beta1.Module{waiting("a"), waiting("b")}, off: true},
		"the other is elsewhere": {
			config: reports(boot, "a"), off: true,
			modules: []v1beta1.Module{waiting("a"), waiting("b", func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{"pool": "y"} })},
		},
		"the other does not wait": {
			config: reports(boot, "a"), off: true,
			modules: []v1beta1.Module{waiting("a"), waiting("b", func(m *v1beta1.Module) { m.Spec.StartupTaint = "" })},
		},
		"the other is kept out by another taint": {
			node: taintedNode(func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
			}),
			config: reports(boot, "a"), modules: []v1beta1.Module{waiting("a"), waiting("b")}, off: true,
		},
		"the other is unloaded for another taint": {
			node: taintedNode(func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "upgrade", Effect: corev1.TaintEffectNoSchedule})
			}),
			config: reports("boot-0", "b"), off: true, modules: []v1beta1.Module{waiting("b"), waiting("a", func(m *v1beta1.Module) {
				m.Spec.ModuleLoader, m.Spec.Tolerations = nil, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			})},
		},
		"the other leaves": {
			config: reports(boot, "a"), off: true,
			modules: []v1beta1.Module{waiting("a"), waiting("b", func(m *v1beta1.Module) { m.DeletionTimestamp = &metav1.Time{} })},
		},
		"without the plugin": {config: reports(boot, "a"), modules: []v1beta1.Module{waiting("a", plugin)}},
		"with the plugin": {
			node: taintedNode(label(v1beta1.DevicePluginReadyLabel("ns", "a"))), config: reports(boot, "a"),
			modules: []v1beta1.Module{waiting("a", plugin)}, off: true,
		},
		"without the DRA driver": {
			config: reports(boot, "a"), modules: []v1beta1.Module{waiting("a", func(m *v1beta1.Module) { m.Spec.DRA = &v1beta1.DRASpec{} })},
		},
		"a plugin alone": {
			node:    taintedNode(label(v1beta1.DevicePluginReadyLabel("ns", "a"))),
			modules: []v1beta1.Module{waiting("a", plugin, func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil })}, off: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.node == nil {
				tc.node = taintedNode()
			}
			named, err := c.named(t.Context(), tc.node, tc.modules)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(finished(tc.node, tc.config, named, c.unload), key); got != tc.off {
				t.Errorf("taken off: %v, want %v", got, tc.off)
			}
		})
	}
}

func TestPatchTestsWhatItRemoves(t *testing.T) {
	want := `[{"op":"test","path":"/metadata/uid","value":"a-uid"},` +
		`{"op":"test","path":"/spec/taints/2","value":{"key":"example.com/starting","value":"x","effect":"NoExecute"}},{"op":"remove","path":"/spec/taints/2"},` +
		`{"op":"test","path":"/spec/taints/0","value":{"key":"example.com/starting","effect":"NoSchedule"}},{"op":"remove","path":"/spec/taints/0"}]`
	got, err := withoutTaints(taintedNode(), []string{key})
	if err != nil || string(got) != want {
		t.Errorf("patch %s (%v), want %s", got, err, want)
	}
	if got, err := withoutTaints(taintedNode(), []string{"elsewhere"}); err != nil || got != nil {
		t.Errorf("patch %s (%v), want none", got, err)
	}
}
