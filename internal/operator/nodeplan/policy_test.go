// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
)

// denying is a policy that is tried or enforced where a node's label says so, and allows nothing.
func denying(mode v1alpha1.ModulePolicyMode) modulepolicy.Set {
	return modulepolicy.Of([]v1alpha1.ModulePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.ModulePolicySpec{
		Mode: mode, Load: v1alpha1.Deny, NamespaceSelector: &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{"closed": ""}},
		NodeSelector: &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{"nic": "yes"}},
	}}})
}

// TestAPolicyDeniesWhatIsNew, and nothing that was ordered, or is live.
func TestAPolicyDeniesWhatIsNew(t *testing.T) {
	order := aimed(t)
	order.Delivery.CarrierUID = ours
	ordered := func(change ...func(*v1beta1.NodeModuleSpec)) func(*Node) {
		return func(n *Node) {
			o := order.DeepCopy()
			for _, f := range change {
				f(o)
			}
			n.Config.Spec.Modules = []v1beta1.NodeModuleSpec{*o}
		}
	}
	old := ordered(func(o *v1beta1.NodeModuleSpec) { o.Delivery.ID = "old" })
	others := ordered(func(o *v1beta1.NodeModuleSpec) { o.Config.Modprobe.Parameters = []string{"a=b"} })
	theirs := ordered(func(o *v1beta1.NodeModuleSpec) { o.Delivery = nil })
	elsewhere := func(n *Node) { n.Node.Labels = map[string]string{"nic": "no"} }
	absent := ordered(func(o *v1beta1.NodeModuleSpec) { o.State = v1beta1.NodeModuleAbsent })
	live := func(n *Node) {
		n.Config.Status.Artifacts = []v1beta1.NodeArtifact{{ID: order.Delivery.ID}}
		n.Config.Status.Modules = []v1beta1.NodeModuleStatus{{
			ModuleItem: order.ModuleItem, Config: &order.Config, Observed: &v1beta1.ObservedModule{BuildID: "b1"},
		}}
	}
	cases := map[string]struct {
		given []func(*Node)
		then  bool
	}{
		"a node without an order":                    {then: true},
		"another build is ordered, and live":         {given: []func(*Node){live, old}, then: true},
		"other parameters are ordered":               {given: []func(*Node){live, others}, then: true},
		"an order to unload stands, and it has gone": {given: []func(*Node){absent}, then: true},
		"an order to unload stands, and it is live":  {given: []func(*Node){absent, live}},
		"it is ordered":                              {given: []func(*Node){ordered()}},
		"another operator ordered it":                {given: []func(*Node){theirs}},
		"it is live, and lost its order":             {given: []func(*Node){live}},
		"the policy does not choose the node":        {given: []func(*Node){elsewhere}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, n := given(), emptyNode()
			m.Spec.Selector = map[string]string{}
			for _, f := range tc.given {
				f(&n)
			}
			n.Read(key, n.Config)
			p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon,
				Policies: denying(v1alpha1.PolicyEnforce), Namespace: map[string]string{"closed": ""}}
			a := p.Aim(&n)
			pl := p.Make([]Node{n}, []Aim{a}, nil)[0]
			step := pl.Step()
			if told := pl.Tell(); (told != nil) != tc.then {
				t.Fatalf("told %+v", told)
			} else if tc.then && (told.Reason != v1beta1.ReasonPolicyDenied || !strings.Contains(told.Message, "ModulePolicy p ")) {
				t.Errorf("told %+v", told)
			}
			if tc.then && !step.Idle() {
				t.Errorf("a denied node is changed: %+v", step)
			}
			// The same place, where the policy is only tried.
			p.Policies = denying(v1alpha1.PolicyAudit)
			a = p.Aim(&n)
			if a.Denied != nil || a.Keep {
				t.Errorf("a policy that is only tried denies: %+v", a)
			}
			if got := p.Audited(&n, &a) != nil; got != tc.then {
				t.Errorf("a policy that is only tried tells: %v", got)
			}
			// And in a namespace that it does not choose.
			p.Policies, p.Namespace = denying(v1alpha1.PolicyEnforce), nil
			if a = p.Aim(&n); a.Denied != nil {
				t.Errorf("denied in another namespace: %+v", a.Denied)
			}
		})
	}
}

// TestAPolicyUnloadsNothing: what leaves does so for other reasons, and no policy keeps it.
func TestAPolicyUnloadsNothing(t *testing.T) {
	order := aimed(t)
	order.Delivery.CarrierUID = types.UID("c")
	for name, change := range map[string]func(*v1beta1.Module, *corev1.Node){
		"a deleted Module":   func(m *v1beta1.Module, _ *corev1.Node) { m.DeletionTimestamp = &metav1.Time{Time: noon} },
		"no moduleLoader":    func(m *v1beta1.Module, _ *corev1.Node) { m.Spec.ModuleLoader = nil },
		"nothing is changed": func(*v1beta1.Module, *corev1.Node) {},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := given(), emptyNode()
			change(m, n.Node)
			n.Config.Spec.Modules = []v1beta1.NodeModuleSpec{*order.DeepCopy()}
			n.Read(key, n.Config)
			p := Pass{Key: key, Module: m, Now: noon, Namespace: map[string]string{"closed": ""}, Wants: desired.New(m).With(desired.Images{})}
			without := p.Aim(&n)
			p.Policies = denying(v1alpha1.PolicyEnforce)
			with := p.Aim(&n)
			if with.Unload != without.Unload || with.Keep != without.Keep || with.Denied != nil {
				t.Errorf("with a policy %+v, without %+v", with, without)
			}
		})
	}
}

// TestADrainThatAPolicyDoesNotAllowEvictsNothing, also for an order that stands or that unloads.
func TestADrainThatAPolicyDoesNotAllowEvictsNothing(t *testing.T) {
	s := driven(t)
	s.module.Spec.Rollout = &v1beta1.RolloutSpec{Drain: v1beta1.DrainNode}
	allowing := func(most v1beta1.DrainPolicy, mode v1alpha1.ModulePolicyMode) modulepolicy.Set {
		return modulepolicy.Of([]v1alpha1.ModulePolicy{{Spec: v1alpha1.ModulePolicySpec{Mode: mode, Drain: most}}})
	}
	for name, tc := range map[string]struct {
		given modulepolicy.Set
		then  v1beta1.DrainPolicy
	}{
		"no policy":              {then: v1beta1.DrainNode},
		"says nothing":           {allowing("", v1alpha1.PolicyEnforce), v1beta1.DrainNone},
		"allows less":            {allowing(v1beta1.DrainHolders, v1alpha1.PolicyEnforce), v1beta1.DrainNone},
		"allows it":              {allowing(v1beta1.DrainNode, v1alpha1.PolicyEnforce), v1beta1.DrainNode},
		"says nothing, as tried": {allowing("", v1alpha1.PolicyAudit), v1beta1.DrainNode},
	} {
		p := Pass{Key: key, Module: s.module, Now: noon, Policies: tc.given}
		if got, _ := p.drainPolicy(&s.node); got != tc.then {
			t.Errorf("%s: the drain is %q, want %q", name, got, tc.then)
		}
	}
}
