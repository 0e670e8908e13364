// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	orderkey "github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/test/sim/images"
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
		return pod != nil && images.Module(carries(pod)) == s.name
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

// powerPromises are about a node whose power was cut, whose clock steps, or whose kernel hangs.
var powerPromises = []Promise{
	{Name: "files-outlive-cut", Text: "After a power cut, each of the agent's files is whole: none is put aside.",
		Source: sourceWrong + ", The previous build serves; internal/agent/statefile", lit: filesOutliveCut},
	{Name: "held-outlives-cut", Text: "What an agent says to have delivered is on its disk, whole, after a power cut.",
		Source: sourceOrders + ", 3; " + sourceWrong + ", The previous build serves", lit: heldOutlivesCut},
	{Name: "worked-outlives-cut", Text: "The form in which an order last worked is remembered after a power cut.",
		Source: sourceWrong + ", The previous build serves", lit: workedOutlivesCut},
	{Name: "record-outlives-cut", Text: "Orders that were carried out are recorded, also after a power cut.",
		Source: "docs/design/0007-boot.md; " + sourceWrong, lit: recordOutlivesCut},
	{Name: "comes-back", Text: "What was live before a power cut is loaded again at once, with no delivery, where nothing has changed.",
		Source: sourceAgent + ", Truth after a reboot; " + sourceWrong + ", The previous build serves", back: comesBack},
	{Name: "whole-loads", Text: "No kernel is asked for a file that is not whole.", Source: sourceAgent + ", Consequences; " + sourceWrong,
		call: wholeLoads},
	{Name: "hung-is-left", Text: "A module whose call has not returned, or was killed, is left alone until the next boot.",
		Source: "docs/design/0044-hung-calls.md, What happens; " + sourceWrong + ", Decision", call: hungIsLeft},
	{Name: "waits-end", Text: "No wait is longer than a day, nor one after a single strike than five minutes, whatever a clock said.",
		Source: sourceWrong + ", Decision and The previous build serves; internal/agent/fuse", of: kindOrders, write: reported(waitsEnd)},
}

func callsApart(c *call) string {
	if c.Module != c.judge.name && slices.Contains(images.Names, c.Module) {
		return fmt.Sprintf("%s called %s for %s, and its order is %s", c.m.name, c.Call.Call, c.Module, say(c.order))
	}
	return ""
}

func entriesApart(j *trial, r *write) string {
	now, before, _ := both[*v1beta1.NodeModulesConfig](r)
	if now == nil && last[*corev1.Node](j.judge, kindNode, r.key) == nil {
		return "" // with the node, all goes
	}
	if r.actor == "module" && j.request != "" && j.request != j.key() && !reflect.DeepEqual(j.orderOf(now), j.orderOf(before)) {
		return fmt.Sprintf("a pass of %s made the order of %s %s of %s", j.request, r.key, say(j.orderOf(now)), say(j.orderOf(before)))
	}
	return ""
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

// before is what a node was when its power was cut.
type before struct {
	boot  string
	told  *v1beta1.NodeModulesConfig // as its agent has left it; nil: there is none
	shown *v1beta1.NodeModulesConfig
	live  map[string]string // images, by kernel module
	aside map[string]bool   // files that are put aside
	has   map[string]bool   // records of deliveries
}

// remember notes what a node is.
func (m *machine) remember() *before {
	boot, err := m.kernel.BootID()
	must(err)
	b := &before{boot: boot, told: last[*v1beta1.NodeModulesConfig](&m.w.judge, kindOrders, m.name), shown: m.shown,
		live: map[string]string{}, aside: m.aside(), has: map[string]bool{}}
	for _, s := range subjects {
		b.live[s.name] = s.live(m)
	}
	records, err := filepath.Glob(filepath.Join(m.dir, "store", "deliveries", "*.json"))
	must(err)
	for _, r := range records {
		b.has[strings.TrimSuffix(filepath.Base(r), ".json")] = true
	}
	return b
}

// aside are the files that the agent has put aside.
func (m *machine) aside() map[string]bool {
	all := map[string]bool{}
	for _, pattern := range []string{"state/*.aside", "fuse/*.damaged", "store/damaged/*"} {
		names, err := filepath.Glob(filepath.Join(m.dir, pattern))
		must(err)
		for _, name := range names {
			all[filepath.Base(name)] = true
		}
	}
	return all
}

// lit is a node whose power is back, and its agent has begun.
type lit struct {
	judge *trial
	m     *machine
	*before
	order *v1beta1.NodeModuleSpec // as it was shown
}

// powered asks the promises about a node whose power is back.
func (j *judge) powered(m *machine, b *before, ask func(*Promise) func(*lit) string) {
	for _, t := range j.all() {
		t.judged(func(p *Promise) string {
			if ask(p) == nil {
				return ""
			}
			return ask(p)(&lit{t, m, b, t.orderOf(b.shown)})
		})
	}
}

func filesOutliveCut(l *lit) string {
	for name := range l.m.aside() {
		if !l.aside[name] {
			return fmt.Sprintf("%s put %s aside after a power cut", l.m.name, name)
		}
	}
	return ""
}

func heldOutlivesCut(l *lit) string {
	if l.told == nil {
		return ""
	}
	for _, a := range l.told.Status.Artifacts {
		if !l.has[a.ID] {
			continue // the agent has thrown it away since, or another disk had it
		}
		if _, err := l.m.store.Open(a.ID); err != nil {
			return fmt.Sprintf("%s had the delivery %s before a power cut: %v", l.m.name, a.ID, err)
		}
	}
	return ""
}

// served says whether a node's agent had said that what is ordered is live, and it was; empty: no.
func (l *lit) served() string {
	live := l.judge.liveIn(l.told)
	if !loads(l.order) || live == nil || live.BootID != l.boot || live.Config == nil ||
		live.Config.ContainerImage != l.before.live[l.judge.name] {
		return ""
	}
	return live.Config.ContainerImage
}

func workedOutlivesCut(l *lit) string {
	image := l.served()
	if image == "" {
		return ""
	}
	done, err := journal.Read(filepath.Join(l.m.dir, "state"), l.m.name, statefile.NoSync)
	must(err)
	w := done.Worked[keyOf(l.judge.subject)]
	if w == nil || w.Config.ContainerImage != image && w.Config.ContainerImage != l.order.Config.ContainerImage {
		return fmt.Sprintf("%s had %s live before a power cut, and remembers %+v", l.m.name, images.Short(image), w)
	}
	return ""
}

func keyOf(s subject) orderkey.Key { return orderkey.Key{Namespace: namespace, Name: s.name} }

func recordOutlivesCut(l *lit) string {
	var record struct {
		ClusterUID string                        `json:"clusterUID"`
		NodeName   string                        `json:"nodeName"`
		Spec       v1beta1.NodeModulesConfigSpec `json:"spec"`
	}
	if len(l.m.seen) == 0 || l.judge.orderOf(l.m.seen[0]) == nil {
		return ""
	}
	found, err := statefile.Read(filepath.Join(l.m.dir, "state"), "record.json", 2, &record)
	has := l.judge.orderOf(&v1beta1.NodeModulesConfig{Spec: record.Spec})
	if found && err == nil && (has == nil || slices.ContainsFunc(l.m.seen, func(n *v1beta1.NodeModulesConfig) bool {
		return reflect.DeepEqual(l.judge.orderOf(n), has)
	})) {
		return ""
	}
	return fmt.Sprintf("%s has carried out %s, and has recorded %s: %v", l.m.name, say(l.judge.orderOf(l.m.seen[0])), say(has), err)
}

// comesBack leaves out what the kernel was asked for and refused, and a node that keeps going down.
func comesBack(l *lit) string {
	image := l.served()
	if image == "" || l.order.Paused || l.order.Config.ContainerImage != image || l.judge.live(l.m) == image ||
		!reflect.DeepEqual(l.order, l.judge.orderOf(l.m.shown)) || l.m.release != l.order.Config.KernelVersion {
		return ""
	}
	boots := 0
	for _, c := range l.m.kernel.Calls() {
		switch {
		case c.Call == "reboot" && l.m.clock().Since(c.Time) < time.Hour:
			boots++
		case c.Call == "reboot":
			boots = 0
		}
		if _, struck := l.judge.kernelOf(l.m.name).struck[c.BuildID]; struck && images.OfBuild(c.BuildID) == image {
			return ""
		}
	}
	if boots > 1 || slices.ContainsFunc(l.m.sinceBoot(), func(c fake.Call) bool { return c.For == l.judge.key() && c.Result != "" }) {
		return ""
	}
	return fmt.Sprintf("%s had %s live before a power cut, and does not load it again: ordered %s; attempt %s", l.m.name, images.Short(image),
		say(l.order), l.judge.tried(last[*v1beta1.NodeModulesConfig](l.judge.judge, kindOrders, l.m.name)))
}

// sinceBoot are the kernel's calls in this boot.
func (m *machine) sinceBoot() []fake.Call {
	calls := m.kernel.Calls()
	for i := len(calls) - 1; i >= 0; i-- {
		if calls[i].Call == "reboot" {
			return calls[i+1:]
		}
	}
	return calls
}
