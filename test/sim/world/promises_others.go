// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kubelet"
)

// subject is a Module that histories have, of its kernel module's name.
type subject struct{ name string }

// subjects are the Modules of histories. A history begins with the first alone.
var (
	nic      = subject{images.Names[0]}
	aux      = subject{images.Names[1]}
	subjects = []subject{nic, aux}
)

func (s subject) key() string { return namespace + "/" + s.name }

// image is the Module's image of a number.
func (s subject) image(a uint8) string { return images.Of(s.name, a) }

// pluginImage is the image of the Module's device plugin of a number.
func (s subject) pluginImage(a uint8) string {
	return fmt.Sprintf("registry.example/%s-plugin:%d", s.name, a%images.Each)
}

// concerns says whether a write may be about the Module: orders, status and labels of a node are
// about all.
func (s subject) concerns(r *write) bool {
	switch r.kind {
	case kindModule:
		return r.key == s.key()
	case kindPod:
		pod, before, _ := both[*corev1.Pod](r)
		if pod == nil {
			pod = before
		}
		return s.isPlugin(pod) || pod != nil && images.Module(kubelet.Carries(pod)) == s.name
	case kindSet:
		ds, before, _ := both[*appsv1.DaemonSet](r)
		if ds == nil {
			ds = before
		}
		return ds != nil && ds.Labels[v1beta1.ModuleNameLabel] == s.name
	}
	return true
}

// orderOf is the Module's order among those of a node; nil: there is none.
func (s subject) orderOf(n *v1beta1.NodeModulesConfig) *v1beta1.NodeModuleSpec {
	if n == nil {
		return nil
	}
	return of(s, n.Spec.Modules, func(o *v1beta1.NodeModuleSpec) string { return o.Name })
}

// attemptOf is what a node's agent says of the order; nil: nothing.
func (s subject) attemptOf(n *v1beta1.NodeModulesConfig) *v1beta1.NodeModuleAttempt {
	if n == nil {
		return nil
	}
	return of(s, n.Status.Attempts, func(a *v1beta1.NodeModuleAttempt) string { return a.Name })
}

// liveIn is what a node's agent says to be live; nil: nothing.
func (s subject) liveIn(n *v1beta1.NodeModulesConfig) *v1beta1.NodeModuleStatus {
	if n == nil {
		return nil
	}
	return of(s, n.Status.Modules, func(m *v1beta1.NodeModuleStatus) string { return m.Name })
}

// of is the element of the Module's name.
func of[T any](s subject, all []T, name func(*T) string) *T {
	for i := range all {
		if name(&all[i]) == s.name {
			return &all[i]
		}
	}
	return nil
}

// otherPromises are about what others have to do with a Module: other Modules that share its nodes,
// and ModulePolicies, of which that they unload nothing is promised with the orders.
var otherPromises = []Promise{
	{Name: "calls-apart", Text: "What an agent does for one Module leaves the kernel module of another alone.",
		Source: sourceOrders + ", 1", call: callsApart},
	{Name: "entries-apart", Text: "A Module's pass changes no order but its own.", Source: sourceOrders + ", 2", of: kindOrders,
		write: entriesApart},
	{Name: "entries-owned", Text: "Each order that is applied belongs to one field owner, which names its Module.",
		Source: sourceOrders + ", 2", of: kindOrders, write: ordered(entriesAreOwned)},
	{Name: "absent-stays-held", Text: "While an order to unload stands, what is done for others leaves its finalizer.",
		Source: sourceOrders + ", 4", of: kindOrders, write: absentStaysHeld},
	{Name: "policy-denies", Text: "No node gets an order that is new to it and that an enforced ModulePolicy does not allow.",
		Source: "docs/guide/policy.md, What is denied, and what is not", of: kindOrders, write: ordered(policyDenies)},
}

func callsApart(c *call) string {
	if c.Module != c.judge.name && slices.Contains(images.Names, c.Module) {
		return fmt.Sprintf("%s called %s for %s, and its order is %s", c.m.name, c.Call.Call, c.Module, say(c.order))
	}
	return ""
}

func entriesApart(j *trial, r *write) string {
	now, before, _ := both[*v1beta1.NodeModulesConfig](r)
	if r.actor == "module" && j.request != "" && j.request != j.key() && !reflect.DeepEqual(j.orderOf(now), j.orderOf(before)) {
		return fmt.Sprintf("a pass of %s made the order of %s %s of %s", j.request, r.key, say(j.orderOf(now)), say(j.orderOf(before)))
	}
	return ""
}

// moduleIsHeld looks at first orders: a finalizer may be taken off by hand later.
func moduleIsHeld(j *trial, o order) string {
	if o.was != nil || !loads(o.now) || !every(j.modules(), func(m *v1beta1.Module) bool {
		return m != nil && !slices.Contains(m.Finalizers, v1beta1.ModuleFinalizer)
	}) {
		return ""
	}
	return fmt.Sprintf("%s is ordered %s, and the Module has no finalizer", o.m.name, say(o.now))
}

func entriesAreOwned(j *trial, o order) string {
	entry := fmt.Sprintf(`"k:{\"name\":\"%s\",\"namespace\":\"%s\"}"`, j.name, namespace)
	var owners []string
	for _, f := range o.config.ManagedFields {
		if f.Subresource == "" && f.FieldsV1 != nil && strings.Contains(string(f.FieldsV1.Raw), entry) {
			owners = append(owners, f.Manager)
		}
	}
	if want := "drover/" + j.key(); o.now != nil && !slices.Equal(owners, []string{want}) {
		return fmt.Sprintf("the order of %s belongs to %q", o.m.name, owners)
	}
	return ""
}

func absentStaysHeld(j *trial, r *write) string {
	now, before, _ := both[*v1beta1.NodeModulesConfig](r)
	if now == nil || before == nil || r.actor != "module" || !unloads(j.orderOf(now)) ||
		!reflect.DeepEqual(j.orderOf(now), j.orderOf(before)) || last[*corev1.Node](j.judge, kindNode, r.key) == nil {
		return ""
	}
	if slices.Contains(before.Finalizers, orderFinalizer) && !slices.Contains(now.Finalizers, orderFinalizer) {
		return fmt.Sprintf("a pass of %s took the finalizer of %s, which is ordered %s", j.request, r.key, say(j.orderOf(now)))
	}
	return ""
}

func policyDenies(j *trial, o order) string {
	if !loads(o.now) || o.was != nil && sameWish(&o.now.Config, &o.was.Config) {
		return ""
	}
	for _, p := range []string{"p0", "p1"} {
		denied := every(seen[*v1alpha1.ModulePolicy](j.judge, kindPolicy, p), func(p *v1alpha1.ModulePolicy) bool {
			return p != nil && p.Spec.Mode == v1alpha1.PolicyEnforce && !permits(&p.Spec, &o.now.Config) &&
				every(seen[*corev1.Node](j.judge, kindNode, o.m.name), func(n *corev1.Node) bool { return n != nil && governs(&p.Spec, n) })
		})
		if denied {
			return fmt.Sprintf("%s is ordered %s after %s, and the ModulePolicy %s does not allow that", o.m.name, say(o.now), say(o.was), p)
		}
	}
	return ""
}

// sameWish says whether policies have nothing new to allow: what is loaded and removed, from where,
// and with which parameters.
func sameWish(a, b *v1beta1.ModuleConfig) bool {
	return a.ContainerImage == b.ContainerImage && slices.Equal(a.InTreeModulesToRemove, b.InTreeModulesToRemove) &&
		slices.Equal(a.Modprobe.Parameters, b.Modprobe.Parameters)
}

// governs says whether a policy applies on a node. Histories have one namespace.
func governs(p *v1alpha1.ModulePolicySpec, n *corev1.Node) bool {
	if p.NodeSelector == nil {
		return true
	}
	for k, v := range p.NodeSelector.MatchLabels {
		if n.Labels[k] != v {
			return false
		}
	}
	return true
}

// permits says whether a policy allows what is to be loaded.
func permits(p *v1alpha1.ModulePolicySpec, c *v1beta1.ModuleConfig) bool {
	if p.Load == v1alpha1.Deny || p.Images != nil && !fits(p.Images, c.ContainerImage) {
		return false
	}
	for _, module := range slices.Concat([]string{images.Module(c.ContainerImage)}, c.InTreeModulesToRemove) {
		if p.Modules != nil && !fits(p.Modules, module) {
			return false
		}
	}
	return p.Parameters == nil ||
		!slices.ContainsFunc(c.Modprobe.Parameters, func(parameter string) bool { return !fits(p.Parameters.Only, parameter) })
}

// fits says whether one of the patterns is the text, or a beginning of it that ends with *.
func fits(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		begin, open := strings.CutSuffix(p, "*")
		return p == text || open && strings.HasPrefix(text, begin)
	})
}

// nodeConditionIsSo leaves out nodes where it is not plain whether a Module is ready.
func nodeConditionIsSo(s *stillness, n stillNode) string {
	want, plain := s.readiness(n)
	for _, t := range s.judge.all() {
		if t.subject == s.judge.subject {
			continue
		}
		other := t.still()
		for _, at := range other.nodes {
			if at.m == n.m {
				status, is := other.readiness(at)
				plain = plain && is
				want = worse(want, status)
			}
		}
	}
	got := corev1.ConditionStatus("")
	for _, c := range n.node.Status.Conditions {
		if c.Type == v1beta1.NodeConditionKernelModules {
			got = c.Status
		}
	}
	if plain && got != want {
		return fmt.Sprintf("the node's condition is %q, and should be %q; %s", got, want, s.say(n))
	}
	return ""
}

// readiness is what a Module alone would make a node's condition; false: it is not plain. Empty: it
// does not belong on the node.
func (s *stillness) readiness(n stillNode) (status corev1.ConditionStatus, plain bool) {
	switch {
	case !matches(s.module, n.node) || s.module.DeletionTimestamp != nil:
		return "", true
	case s.carriedOut(n):
		return corev1.ConditionTrue, true
	}
	return corev1.ConditionFalse, n.live == ""
}

// worse is the condition of a node where two Modules would make it these.
func worse(a, b corev1.ConditionStatus) corev1.ConditionStatus {
	return min(cmp.Or(a, b), cmp.Or(b, a)) // False is before True
}
