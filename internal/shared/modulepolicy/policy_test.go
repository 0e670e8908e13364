// SPDX-License-Identifier: Apache-2.0

package modulepolicy_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
)

// policy is one that is enforced everywhere.
func policy(name string, change ...func(*v1alpha1.ModulePolicySpec)) v1alpha1.ModulePolicy {
	p := v1alpha1.ModulePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ModulePolicySpec{Mode: v1alpha1.PolicyEnforce}}
	for _, f := range change {
		f(&p.Spec)
	}
	return p
}

// nic is a wish to load a module with a dependency and a parameter, instead of another one.
func nic(change ...func(*modulepolicy.Wish)) *modulepolicy.Wish {
	w := &modulepolicy.Wish{Config: &v1beta1.ModuleConfig{
		KernelVersion: "6.1.0", ContainerImage: "registry.example.com/drivers/nic:6.1.0", InTreeModulesToRemove: []string{"old_nic"},
		Modprobe: v1beta1.ModprobeSpec{
			ModuleName: "nic-core", ModulesLoadingOrder: []string{"nic-core", "nic_bus"}, Parameters: []string{"mode=fast", "debug=0"},
		},
	}}
	for _, f := range change {
		f(w)
	}
	return w
}

func TestWhatAPolicyDenies(t *testing.T) {
	type spec = v1alpha1.ModulePolicySpec
	type rules = []func(*spec)
	type wishes = []func(*modulepolicy.Wish)
	modules := func(patterns ...string) func(*spec) { return func(s *spec) { s.Modules = patterns } }
	images := func(patterns ...string) func(*spec) { return func(s *spec) { s.Images = patterns } }
	only := func(patterns ...string) func(*spec) {
		return func(s *spec) { s.Parameters = &v1alpha1.ModulePolicyParameters{Only: patterns} }
	}
	noBuild := func(s *spec) { s.Build = v1alpha1.Deny }
	noArgs := func(s *spec) { s.ModprobeArgs = v1alpha1.Deny }
	argsAllowed := func(s *spec) { s.ModprobeArgs = v1alpha1.Allow }
	builds := func(w *modulepolicy.Wish) { w.Builds = true }
	args := func(w *modulepolicy.Wish) { w.Config.Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{"-f"}} }
	raw := func(w *modulepolicy.Wish) {
		w.Config.Modprobe = v1beta1.ModprobeSpec{RawArgs: &v1beta1.ModprobeArgs{Load: []string{"any"}, Unload: []string{"-r", "any"}}}
	}
	firmware := func(w *modulepolicy.Wish) { w.Config.Modprobe.FirmwarePath = "/firmware" }
	drains := func(d v1beta1.DrainPolicy) func(*modulepolicy.Wish) {
		return func(w *modulepolicy.Wish) { w.Drain = d }
	}
	drain := func(d v1beta1.DrainPolicy) func(*spec) { return func(s *spec) { s.Drain = d } }
	alsoX := func(w *modulepolicy.Wish) { w.Config.InTreeModuleToRemove = "x" }
	gives := func(p ...string) wishes {
		return wishes{func(w *modulepolicy.Wish) { w.Config.Modprobe.Parameters = p }}
	}
	signs := func(w *modulepolicy.Wish) { w.Unsigned = "evil.example.com/nic:1" }
	cases := map[string]struct {
		policy rules
		wish   wishes
		then   string // what it says; empty: it allows it
	}{
		"that says nothing allows what loads": {wish: wishes{builds}},
		"that says nothing of args":           {wish: wishes{args}, then: "allows no args"},
		"images alone, and args":              {policy: rules{images("*")}, wish: wishes{args}, then: "allows no args"},
		"firmware, of which it says nothing":  {wish: wishes{firmware}, then: "modprobe.firmwarePath: ModulePolicy p allows no firmware"},
		"firmware, allowed":                   {policy: rules{func(s *spec) { s.Firmware = v1alpha1.Allow }}, wish: wishes{firmware}},
		"a drain, of which it says nothing":   {wish: wishes{drains("Holders")}, then: "drain: ModulePolicy p does not allow Holders"},
		"no drain":                            {wish: wishes{drains("None")}},
		"a drain, more than allowed":          {policy: rules{drain("Holders")}, wish: wishes{drains("Node")}, then: "does not allow Node"},
		"a drain, less than allowed":          {policy: rules{drain("Node")}, wish: wishes{drains("Holders")}},
		"load": {policy: rules{func(s *spec) { s.Load = v1alpha1.Deny }},
			then: "spec.moduleLoader: ModulePolicy p lets no Module of namespace team load anything here"},
		"build, of an image that is built": {policy: rules{noBuild},
			wish: wishes{builds},
			then: "spec.moduleLoader.container.build: ModulePolicy p allows no image that is built in the cluster"},
		"build, of one that is not": {policy: rules{noBuild}},

		"args":    {policy: rules{noArgs}, wish: wishes{args}, then: "no args"},
		"rawArgs": {policy: rules{noArgs}, wish: wishes{raw}, then: "no rawArgs"},
		"args that say nothing": {policy: rules{noArgs},
			wish: wishes{func(w *modulepolicy.Wish) { w.Config.Modprobe.Args = &v1beta1.ModprobeArgs{} }}},
		"args, which could name any module":          {policy: rules{modules("*")}, wish: wishes{args}, then: "no args"},
		"args, which could give any parameter":       {policy: rules{only("*")}, wish: wishes{args}, then: "no args"},
		"args where modules are limited, if allowed": {policy: rules{modules("nic*", "old_nic"), argsAllowed}, wish: wishes{args}},

		"modules, all of them":                {policy: rules{modules("nic_core", "nic-bus", "old-nic")}},
		"modules, by their beginnings":        {policy: rules{modules("nic-*", "old*")}},
		"modules, any":                        {policy: rules{modules("*")}},
		"modules, but not the one to load":    {policy: rules{modules("nic_bus", "old_nic")}, then: `the kernel module "nic-core"`},
		"modules, but not the dependency":     {policy: rules{modules("nic_core", "old_nic")}, then: `the kernel module "nic_bus"`},
		"modules, but not the one to remove":  {policy: rules{modules("nic*")}, then: `the kernel module "old_nic"`},
		"modules, but not the one of old":     {policy: rules{modules("nic*", "old_nic")}, wish: wishes{alsoX}, then: `"x"`},
		"modules: a beginning is no whole":    {policy: rules{modules("nic", "old_nic")}, then: `the kernel module "nic-core"`},
		"modules, and no name but in rawArgs": {policy: rules{modules("old*"), argsAllowed}, wish: wishes{raw}},

		"parameters, none allowed":          {policy: rules{only()}, then: `does not allow the parameter "mode=fast"`},
		"parameters, none allowed or given": {policy: rules{only()}, wish: gives()},
		"parameters, listed":                {policy: rules{only("mode=*", "debug=0")}},
		"parameters, another value":         {policy: rules{only("mode=*", "debug=1")}, then: `"debug=0"`},
		"parameters, one behind quotes":     {policy: rules{only("debug=*")}, wish: gives(`debug="0" x=1`), then: `does not allow`},
		"parameters, one after a quote":     {policy: rules{only("debug=*")}, wish: gives(`debug=0" x=1 y="`), then: `does not allow`},
		"parameters, one before it":         {policy: rules{only("debug*")}, wish: gives("debug x=1"), then: `does not allow`},
		"parameters, one behind a tab":      {policy: rules{only("debug*")}, wish: gives("debug\tx"), then: `does not allow`},
		"parameters, one behind à's end":    {policy: rules{only("debug*")}, wish: gives("debugàx=1"), then: `does not allow`},
		"parameters, a blank in a value":    {policy: rules{only("debug=*")}, wish: gives("debug=a b\nc=à")},
		"parameters, quotes as listed":      {policy: rules{only(`debug="a b"`)}, wish: gives(`debug="a b"`)},
		"parameters, any":                   {policy: rules{only("*")}, wish: gives(`debug="0" x=1`, "y z")},
		"parameters, not limited":           {policy: rules{images("*")}, wish: gives(`debug="0" x=1`)},

		"images, whole":              {policy: rules{images("registry.example.com/drivers/nic:6.1.0")}},
		"images, by their beginning": {policy: rules{images("other.example.com/*", "registry.example.com/drivers/*")}},
		"images of another folder":   {policy: rules{images("registry.example.com/driver/*")}, then: "registry.example.com/drivers/nic"},
		"images, a beginning within": {policy: rules{images("drivers/*")}, then: "does not allow the image"},
		"images, any":                {policy: rules{images("*")}},
		"images, the one that is signed": {policy: rules{images("registry.example.com/*")},
			wish: wishes{signs}, then: "the image evil.example.com/nic:1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := modulepolicy.Of([]v1alpha1.ModulePolicy{policy("p", tc.policy...)}).Denied(nic(tc.wish...), &modulepolicy.Place{Name: "team"})
			switch {
			case tc.then == "" && got != nil:
				t.Errorf("denied: %s", got.Message)
			case tc.then != "" && (got == nil || got.Reason != v1beta1.ReasonPolicyDenied || !strings.Contains(got.Message, tc.then)):
				t.Errorf("got %+v, want %q", got, tc.then)
			}
		})
	}
}

func TestWhereAPolicyApplies(t *testing.T) {
	labels := func(l map[string]string) *v1alpha1.ModulePolicySelector {
		return &v1alpha1.ModulePolicySelector{MatchLabels: l}
	}
	is := func(key string, operator metav1.LabelSelectorOperator, values ...string) *v1alpha1.ModulePolicySelector {
		return &v1alpha1.ModulePolicySelector{
			MatchExpressions: []v1alpha1.ModulePolicyRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	at := modulepolicy.Place{Name: "team", Namespace: map[string]string{"a": "1"}, Node: map[string]string{"pool": "x"}}
	cases := map[string]struct {
		namespace, node *v1alpha1.ModulePolicySelector
		then            bool
	}{
		"everywhere":                         {then: true},
		"everywhere, said so":                {namespace: labels(nil), node: labels(nil), then: true},
		"the namespace":                      {namespace: labels(map[string]string{"a": "1"}), then: true},
		"another namespace":                  {namespace: labels(map[string]string{"a": "2"})},
		"a namespace with a label less":      {namespace: labels(map[string]string{"a": "1", "b": ""})},
		"the node":                           {node: labels(map[string]string{"pool": "x"}), then: true},
		"another node":                       {node: labels(map[string]string{"pool": "y"})},
		"the namespace, but another node":    {namespace: labels(map[string]string{"a": "1"}), node: labels(map[string]string{"pool": "y"})},
		"In":                                 {node: is("pool", "In", "w", "x"), then: true},
		"In, of another":                     {node: is("pool", "In", "w")},
		"In, of a label that is not there":   {node: is("gone", "In", "")},
		"NotIn":                              {node: is("pool", "NotIn", "w"), then: true},
		"NotIn, of its own":                  {node: is("pool", "NotIn", "w", "x")},
		"NotIn, of one that is not there":    {node: is("gone", "NotIn", "x"), then: true},
		"Exists":                             {node: is("pool", "Exists"), then: true},
		"Exists, of one that is not there":   {node: is("gone", "Exists")},
		"DoesNotExist":                       {node: is("gone", "DoesNotExist"), then: true},
		"DoesNotExist, of one that is there": {node: is("pool", "DoesNotExist")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy("p", func(s *v1alpha1.ModulePolicySpec) {
				s.Load, s.NamespaceSelector, s.NodeSelector = v1alpha1.Deny, tc.namespace, tc.node
			})
			if got := modulepolicy.Of([]v1alpha1.ModulePolicy{p}).Denied(nic(), &at); (got != nil) != tc.then {
				t.Errorf("denied %v, want %v", got, tc.then)
			}
		})
	}
}

// TestEveryPolicyMustAllow, and one that is only tried denies nothing.
func TestEveryPolicyMustAllow(t *testing.T) {
	at := &modulepolicy.Place{Name: "team"}
	allows := policy("a", func(s *v1alpha1.ModulePolicySpec) { s.Modules = []string{"*"} })
	denies := policy("c", func(s *v1alpha1.ModulePolicySpec) { s.Images = []string{"r.example.com/*"} })
	first := policy("b", func(s *v1alpha1.ModulePolicySpec) { s.Load = v1alpha1.Deny })
	tried := policy("a", func(s *v1alpha1.ModulePolicySpec) { s.Mode, s.Load = v1alpha1.PolicyAudit, v1alpha1.Deny })
	set := func(all ...v1alpha1.ModulePolicy) modulepolicy.Set { return modulepolicy.Of(all) }

	if p := (modulepolicy.Set{}).Denied(nic(), at); p != nil || !(modulepolicy.Set{}).Empty() {
		t.Errorf("without policies: %+v", p)
	}
	if p := set(allows, denies).Denied(nic(), at); p == nil || !strings.Contains(p.Message, "ModulePolicy c ") {
		t.Errorf("one of two denies: %+v", p)
	}
	if p := set(denies, first).Denied(nic(), at); p == nil || !strings.Contains(p.Message, "ModulePolicy b ") {
		t.Errorf("both deny, and the first by name speaks: %+v", p)
	}
	if p := set(tried, allows).Denied(nic(), at); p != nil {
		t.Errorf("a policy that is only tried denies: %+v", p)
	}
	if p := set(tried, first).Audited(nic(), at); p == nil || !strings.Contains(p.Message, "ModulePolicy a ") {
		t.Errorf("a policy that is only tried says: %+v", p)
	}
	if p := set(first).Audited(nic(), at); p != nil {
		t.Errorf("an enforced policy is only tried: %+v", p)
	}
}
