// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/nodemarks"
	"github.com/drover-project/drover/internal/shared/placement"
)

const boot = "boot-1"

func aNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a-uid", Labels: map[string]string{"pool": "x"}},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot, OperatingSystem: "linux"}},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func aModule(name string, change ...func(*v1beta1.Module)) v1beta1.Module {
	m := v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       v1beta1.ModuleSpec{Selector: map[string]string{"pool": "x"}, ModuleLoader: &v1beta1.ModuleLoaderSpec{}},
	}
	for _, f := range change {
		f(&m)
	}
	return m
}

// reports says that these Modules are live, as ordered.
func reports(names ...string) *v1beta1.NodeModulesConfig {
	c := &v1beta1.NodeModulesConfig{}
	for _, name := range names {
		item := v1beta1.ModuleItem{Namespace: "ns", Name: name}
		c.Spec.Modules = append(c.Spec.Modules, v1beta1.NodeModuleSpec{ModuleItem: item})
		c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{ModuleItem: item, BootID: boot, Observed: &v1beta1.ObservedModule{}})
	}
	return c
}

// attempts adds what stands between orders and their fulfilment, by Module.
func attempts(c *v1beta1.NodeModulesConfig, reasons map[string]string) *v1beta1.NodeModulesConfig {
	for name, reason := range reasons {
		c.Status.Attempts = append(c.Status.Attempts, v1beta1.NodeModuleAttempt{
			Namespace: "ns", Name: name, State: v1beta1.AttemptFailed, Reason: reason, Message: "at 12:00",
		})
	}
	return c
}

const lacking = "False NotReady Not ready: 1 of 1 Module: ns/a"

func TestJudge(t *testing.T) {
	a, both := []v1beta1.Module{aModule("a")}, []v1beta1.Module{aModule("a"), aModule("b")}
	unusable := reports("a")
	unusable.Status.Modules[0].Observed.Unusable = true
	draining := reports("a")
	draining.Spec.Modules[0].State = v1beta1.NodeModuleDraining
	elsewhere := func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{"pool": "y"} }
	var seven []v1beta1.Module
	for i := range 7 {
		seven = append(seven, aModule(fmt.Sprintf("m%d", 6-i)))
	}
	for name, tc := range map[string]struct {
		node    *corev1.Node
		config  *v1beta1.NodeModulesConfig
		modules []v1beta1.Module
		want    string
	}{
		"no Module":          {},
		"a Module elsewhere": {modules: []v1beta1.Module{aModule("a", elsewhere)}},
		"a Module without a kernel module": {
			modules: []v1beta1.Module{aModule("a", func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil })},
		},
		"a Module that is being deleted": {config: reports("a"),
			modules: []v1beta1.Module{aModule("a", func(m *v1beta1.Module) { m.DeletionTimestamp = &metav1.Time{} })}},
		"nothing is known":      {modules: a, want: lacking},
		"live":                  {config: reports("a"), modules: a, want: "True AllReady Ready: 1 Module"},
		"live, and not usable":  {config: unusable, modules: a, want: lacking},
		"live, and about to go": {config: draining, modules: a, want: lacking},
		"one of two":            {config: reports("a"), modules: both, want: "False NotReady Not ready: 1 of 2 Modules: ns/b"},
		"both":                  {config: reports("a", "b"), modules: both, want: "True AllReady Ready: 2 Modules"},
		"the other is elsewhere": {config: reports("a"), modules: []v1beta1.Module{aModule("a"), aModule("b", elsewhere)},
			want: "True AllReady Ready: 1 Module"},
		"before its first report": {config: &v1beta1.NodeModulesConfig{}, modules: a, want: lacking},
		"after a reboot": {config: reports("a"), modules: a, want: lacking,
			node: aNode(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" })},
		"a taint that nobody tolerates": {modules: a, node: aNode(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
		})},
		"a taint that came later": {modules: a, config: reports("a"), want: "True AllReady Ready: 1 Module",
			node: aNode(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}} })},
		"a taint that asks for the unload": {modules: a, config: reports("a"),
			node: aNode(func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "upgrade", Effect: corev1.TaintEffectNoSchedule}}
			})},
		"one reason": {config: attempts(reports("b"), map[string]string{"a": v1beta1.ReasonNotUsable}), modules: both,
			want: "False NotUsable Not ready: 1 of 2 Modules: ns/a (NotUsable)"},
		"two reasons": {
			config:  attempts(reports(), map[string]string{"a": v1beta1.ReasonNotUsable, "b": v1beta1.ReasonInUse}),
			modules: both,
			want:    "False NotReady Not ready: 2 of 2 Modules: ns/a (NotUsable), ns/b (InUse)",
		},
		"on its way": {config: attempts(reports(), map[string]string{"a": v1beta1.ReasonAwaitingDelivery}), modules: a,
			want: lacking},
		"many": {modules: seven, want: "False NotReady Not ready: 7 of 7 Modules: ns/m0, ns/m1, ns/m2, ns/m3, ns/m4, and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			node := tc.node
			if node == nil {
				node = aNode()
			}
			got := ""
			if c := judge(node, tc.config, tc.modules, placement.UnloadTaints{"upgrade"}); c != nil {
				got = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestPatch: what an API server makes of the patch keeps all other conditions, and the time of the
// last transition where there is none.
func TestPatch(t *testing.T) {
	before, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	is := func(status corev1.ConditionStatus, message string, at metav1.Time) *corev1.NodeCondition {
		return &corev1.NodeCondition{Type: v1beta1.NodeConditionKernelModules, Status: status, Reason: "R", Message: message,
			LastHeartbeatTime: at, LastTransitionTime: at}
	}
	none := metav1.Time{}
	no, yes := corev1.ConditionFalse, corev1.ConditionTrue
	other := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	moved := is(no, "n", now)
	moved.LastTransitionTime = before
	for name, tc := range map[string]struct {
		have, want, becomes *corev1.NodeCondition
		writes              bool
	}{
		"none, and none wanted":         {},
		"the first":                     {want: is(no, "m", none), becomes: is(no, "m", now), writes: true},
		"as it is":                      {have: is(no, "m", before), want: is(no, "m", none)},
		"another message":               {have: is(no, "m", before), want: is(no, "n", none), becomes: moved, writes: true},
		"a transition":                  {have: is(no, "m", before), want: is(yes, "n", none), becomes: is(yes, "n", now), writes: true},
		"no Module belongs there again": {have: is(yes, "m", before), writes: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := aNode(func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{other} })
			if tc.have != nil {
				node.Status.Conditions = append(node.Status.Conditions, *tc.have)
			}
			patch, err := patchOf(node, tc.want, now)
			if err != nil || (patch != nil) != tc.writes {
				t.Fatalf("patch %s (%v), want one: %t", patch, err, tc.writes)
			}
			if patch == nil {
				return
			}
			was, err := json.Marshal(node)
			if err != nil {
				t.Fatal(err)
			}
			content, err := strategicpatch.StrategicMergePatch(was, patch, corev1.Node{})
			if err != nil {
				t.Fatal(err)
			}
			var got corev1.Node
			if err := json.Unmarshal(content, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.becomes, nodemarks.Condition(&got)); diff != "" {
				t.Error(diff)
			}
			if len(got.Status.Conditions) == 0 || got.UID != node.UID {
				t.Errorf("what is left: %+v", got)
			}
		})
	}
}
