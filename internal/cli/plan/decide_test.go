// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
)

const newKernel, oldKernel = "6.1.0-44-amd64", "5.10.0-32-amd64"

func module(tag string) *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "drivers", Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"nic": "yes"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: `^6\.`, ContainerImage: "registry.example.com/nic:" + tag}},
			}},
		},
	}
}

// TestPoliciesAreForetold: what is new is denied where a policy applies, and what stands is not.
func TestPoliciesAreForetold(t *testing.T) {
	live, next := module("1"), module("2")
	view := &cluster.View{NodesSeen: true, ConfigsSeen: true, PodsSeen: true, Configs: map[string]*v1beta1.NodeModulesConfig{},
		NamespaceLabels: map[string]string{"team": "net"}, Now: time.Unix(1_800_000_000, 0),
		Policies: modulepolicy.Of([]v1alpha1.ModulePolicy{
			{ObjectMeta: metav1.ObjectMeta{Name: "version-1"}, Spec: v1alpha1.ModulePolicySpec{
				Mode: v1alpha1.PolicyEnforce, Images: []string{"registry.example.com/nic:1"},
				NamespaceSelector: &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{"team": "net"}},
				NodeSelector:      &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{"strict": "yes"}},
			}},
			{ObjectMeta: metav1.ObjectMeta{Name: "tried"}, Spec: v1alpha1.ModulePolicySpec{Mode: v1alpha1.PolicyAudit, Load: v1alpha1.Deny}},
		})}
	node := func(name, strict string, asked *v1beta1.Module, state v1beta1.NodeModuleState) {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nic": "yes", "strict": strict}}}
		n.Status.NodeInfo.KernelVersion = newKernel
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		view.Nodes = append(view.Nodes, n)
		if asked == nil {
			return
		}
		a := desired.New(asked).On(newKernel, "amd64")
		view.Configs[name] = &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.NodeModulesConfigSpec{
			Modules: []v1beta1.NodeModuleSpec{{
				ModuleItem: v1beta1.ModuleItem{Namespace: "drivers", Name: "nic"}, Config: a.State.Config, State: state,
				Delivery: &v1beta1.Delivery{ID: a.State.Delivery},
			}},
		}}
	}
	node("free", "no", nil, "")
	node("strict-has-it", "yes", next, "")
	node("strict-has-old", "yes", live, "")
	node("strict-new", "yes", nil, "")
	node("strict-withdrawn", "yes", next, v1beta1.NodeModuleAbsent)
	const message = "spec.moduleLoader.container.kernelMappings: ModulePolicy version-1 does not allow the image registry.example.com/nic:2"
	want := []Step{
		{Action: Blocked, Why: message, Nodes: []string{"strict-has-old", "strict-new"}},
		{Action: Load, Why: `registry.example.com/nic:2 by kernelMappings[0] (^6\.), delivered first`, Nodes: []string{"free"}},
		{Action: Load, Why: "the order to unload is withdrawn", Nodes: []string{"strict-withdrawn"}},
		{Action: Unchanged, Nodes: []string{"strict-has-it"}},
	}
	if diff := cmp.Diff(want, decide(live, next, view)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	view.Nodes = view.Nodes[1:3] // strict-has-it and strict-has-old
	if r := foresee(next, view); r != nil {
		t.Errorf("denied nodes have a turn: %+v", r)
	}
	view.Policies = modulepolicy.Set{}
	if r := foresee(next, view); r == nil || len(r.Steps) != 1 || r.Steps[0][0] != "strict-has-old" {
		t.Errorf("without policies it is %+v", r)
	}
}

// TestPlan is a new version of a Module against nodes in all states.
func TestPlan(t *testing.T) {
	live, next := module("1"), module("2")
	next.Spec.StartupTaint = "nic.example.com/starts" // which the Module tolerates
	view := &cluster.View{NodesSeen: true, ConfigsSeen: true, PodsSeen: true, Configs: map[string]*v1beta1.NodeModulesConfig{}}
	node := func(name string, asked *v1beta1.Module, changes ...func(*corev1.Node)) {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nic": "yes"}}}
		n.Status.NodeInfo.KernelVersion = newKernel
		if asked != nil {
			a := desired.New(asked).On(newKernel, "amd64")
			if a.State == nil {
				t.Fatal(a.Err)
			}
			view.Configs[name] = &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.NodeModulesConfigSpec{
				Modules: []v1beta1.NodeModuleSpec{{
					ModuleItem: v1beta1.ModuleItem{Namespace: "drivers", Name: "nic"}, Config: a.State.Config,
					Delivery: &v1beta1.Delivery{ID: a.State.Delivery},
				}},
			}}
		}
		for _, change := range changes {
			change(&n)
		}
		view.Nodes = append(view.Nodes, n)
	}
	taint := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{
			{Key: next.Spec.StartupTaint, Effect: corev1.TaintEffectNoSchedule}, {Key: "db", Effect: corev1.TaintEffectNoSchedule},
		}
	}
	aged := func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = oldKernel }
	node("new", nil)
	node("old-version-1", live)
	node("old-version-2", live, taint)
	node("has-it", next)
	node("old-kernel", nil, aged)
	node("lost-mapping", live, aged)
	node("deselected", live, func(n *corev1.Node) { n.Labels = nil })
	node("told", live, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "upgrade", Effect: corev1.TaintEffectNoSchedule}}
		o := &view.Configs["told"].Spec.Modules[0]
		o.State, o.Reason = v1beta1.NodeModuleAbsent, v1beta1.ReasonTainted
	})
	node("foreign", nil, func(n *corev1.Node) { n.Labels = nil })
	node("tainted", nil, taint)
	node("paused", live, func(n *corev1.Node) { n.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} })
	p := Plan{Module: "drivers/nic", Steps: decide(live, next, view), Plugin: plugin(live, next)}

	const want = `Module drivers/nic (changed): 1 load, 2 reload, 3 unload, 1 not covered, 2 left alone, 1 unchanged.
The API server would take it (dry run); nothing was changed.

NOT COVERED  1: old-kernel
             no mapping matches kernel 5.10.0-32-amd64

UNLOAD       1: lost-mapping
             no mapping matches kernel 5.10.0-32-amd64 any longer; after 5m (spec.rollout.deselectGracePeriod is not set)

UNLOAD       1: deselected
             the selector no longer chooses the node; after 5m (spec.rollout.deselectGracePeriod is not set)

UNLOAD       1: told
             the taint upgrade:NoSchedule asks for it, and is not tolerated

RELOAD       2: old-version-1, old-version-2
             image registry.example.com/nic:1 becomes registry.example.com/nic:2, delivered first

LOAD         1: new
             registry.example.com/nic:2 by kernelMappings[0] (^6\.), delivered first

LEFT ALONE   1: paused
             paused by annotation

LEFT ALONE   1: tainted
             the taint db:NoSchedule is not tolerated

UNCHANGED    1: has-it
`
	if diff := cmp.Diff(want, p.render(paint.Painter{}, true)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if p.fine() {
		t.Error("a node without a mapping is fine")
	}
	next.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{}
	if got := plugin(live, next) + plugin(next, next) + plugin(next, live); got != "starts where the kernel module is ready"+
		"stays; on nodes that reload, it stops before and starts again after"+"stops on all nodes" {
		t.Error(got)
	}
}
