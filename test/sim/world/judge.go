// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kernels"
	"github.com/drover-project/drover/test/sim/memetcd"
	"github.com/drover-project/drover/test/sim/taints"
)

// Violation is a promise that was broken.
type Violation struct {
	Promise string
	Text    string
}

func (v *Violation) Error() string { return v.Promise + ": " + v.Text }

// The kinds that promises are about, as etcd's keys name them.
const (
	kindModule = "modules"
	kindOrders = "nodemodulesconfigs"
	kindNode   = "minions"
	kindPod    = "pods"
	kindPolicy = "modulepolicies"
	kindSet    = "daemonsets"
)

// orderFinalizer keeps the object of an order to unload.
const orderFinalizer = "drover.dev/orders"

// cached are the names of these kinds in the operator's caches.
var cached = map[string]string{kindModule: "Module", kindOrders: "NodeModulesConfig", kindNode: "Node", kindPolicy: "ModulePolicy",
	kindPod: "Pod"}

// version is an object from a revision on; a nil object: there is none.
type version struct {
	revision int64
	object   client.Object
}

// write is one write, decoded.
type write struct {
	kind, key, actor string
	// now and before are nil where there is no object.
	now, before client.Object
}

// judge looks at what happens, and keeps what its promises have to remember.
type judge struct {
	w *World
	// past has all versions of each object, by kind and key.
	past map[string][]version
	// known is up to where the operator's caches were when the last pass began, by kind.
	known map[string]int64
	// kernels are what the kernels' calls add up to, by node.
	kernels map[string]*kernels.State
	// passes are those of all controllers, request what the last one was about; empty: it is not known
	// yet.
	passes  int
	request string
	pass    bool // one is under way
	alone   bool // nothing else has happened during it
	trials  []*trial
}

// trial is what a judge holds of one Module. Promises are made for each.
type trial struct {
	*judge
	subject

	// wanted is when a pass last saw that a node is selected.
	wanted map[string]time.Time
	// tainted are the nodes, at rest, that taints asked for an unload.
	tainted []stillNode
}

func newJudge(w *World) judge {
	return judge{w: w, past: map[string][]version{}, known: map[string]int64{}, kernels: map[string]*kernels.State{}}
}

// all are the trials of the Modules that histories have.
func (j *judge) all() []*trial {
	if j.trials == nil {
		for _, s := range subjects {
			j.trials = append(j.trials, &trial{judge: j, subject: s, wanted: map[string]time.Time{}})
		}
	}
	return j.trials
}

// fail notes the first broken promise.
func (w *World) fail(promise, format string, args ...any) {
	if w.found == nil && !w.server.Without[promise] {
		w.found = &Violation{promise, fmt.Sprintf(format, args...)}
		w.Trace("!!!!! %v", w.found)
	}
}

// judged asks all promises that are about one kind of event.
func (j *trial) judged(ask func(*Promise) string) {
	for i := range Promises {
		if text := ask(&Promises[i]); text != "" {
			j.w.fail(Promises[i].Name, "%s: %s", j.name, text)
		}
	}
}

// kernel looks at the calls that a kernel has got since it looked last.
func (j *judge) kernel(m *machine) {
	calls := m.kernel.Calls()
	for i := m.calls; i < len(calls); i++ {
		c := &calls[i]
		j.w.Trace("      %s: %s %s %s %v %s", m.name, c.Call, c.Module, images.Short(images.OfBuild(c.BuildID)), c.Params, c.Result)
		j.called(m, c)
	}
	m.calls = len(calls)
}

// called looks at one call. Promises see the kernel as it was before.
func (j *judge) called(m *machine, c *fake.Call) {
	k, order := j.kernelOf(m.name), (*v1beta1.NodeModuleSpec)(nil)
	for _, t := range j.all() {
		if c.For != t.key() {
			continue
		}
		order = t.orderOf(m.shown)
		t.judged(func(p *Promise) string {
			if p.call == nil {
				return ""
			}
			return p.call(&call{t, m, k, order, c, images.OfBuild(c.BuildID)})
		})
	}
	k.Add(c, order, j.w.clock.Now())
}

// writes looks at what was written since it looked last.
func (j *judge) writes() {
	changes, err := j.w.etcd.Since(j.w.audited, "/")
	must(err)
	for i := range changes {
		c := &changes[i]
		j.w.audited = c.Revision
		r := j.decode(c)
		what := fmt.Sprintf("%s %s by %s", r.kind, r.key, r.actor)
		if c.Value == nil {
			what += ", deleted"
		}
		j.w.Trace("      %d %s", c.Revision-j.w.begin, what)
		if j.w.calm != nil {
			j.w.calm = append(j.w.calm, what)
		}
		j.wrote(r)
	}
	if !j.pass {
		j.knows()
	}
}

// knows notes up to where the operator's caches are.
func (j *judge) knows() {
	for kind, name := range cached {
		j.known[kind] = j.w.op.Revision(name)
	}
}

// begins notes that a pass begins: what its caches learn before its end, it may have missed.
func (j *judge) begins() { j.pass, j.alone, j.request = true, true, "" }

// interrupted notes that others act during the pass.
func (j *judge) interrupted() {
	j.writes()
	j.alone = false
}

// ends notes that a pass has ended.
func (j *judge) ends() {
	j.pass = false
	j.knows()
}

func (j *judge) wrote(r *write) {
	for _, t := range j.all() {
		if now, before, ok := both[*v1beta1.NodeModulesConfig](r); ok && say(t.orderOf(now)) != say(t.orderOf(before)) {
			live := ""
			if m := j.w.machineOf(r.key); m != nil {
				live = images.Short(t.live(m))
			}
			j.w.Trace("        %s: order %s; live %s", t.name, say(t.orderOf(now)), live)
		}
		if pod, before, ok := both[*corev1.Pod](r); ok && (t.isPlugin(pod) || t.isPlugin(before)) {
			j.w.Trace("        %s: plugin %s", t.name, saysPod(pod))
		}
		t.judged(func(p *Promise) string { return t.asked(p, r) })
	}
}

// asked asks a promise about a write that concerns the Module.
func (j *trial) asked(p *Promise, r *write) string {
	if p.write == nil || p.of != r.kind || !j.concerns(r) {
		return ""
	}
	return p.write(j, r)
}

// decode reads a change, and adds it to the past.
func (j *judge) decode(c *memetcd.Change) *write {
	parts := strings.Split(strings.TrimPrefix(c.Key, "/registry/"), "/")
	if strings.Contains(parts[0], ".") {
		parts = parts[1:]
	}
	r := &write{kind: parts[0], key: strings.Join(parts[1:], "/"), actor: j.w.actor}
	made := map[string]func() client.Object{
		kindModule: func() client.Object { return &v1beta1.Module{} },
		kindOrders: func() client.Object { return &v1beta1.NodeModulesConfig{} },
		kindNode:   func() client.Object { return &corev1.Node{} },
		kindPod:    func() client.Object { return &corev1.Pod{} },
		kindPolicy: func() client.Object { return &v1alpha1.ModulePolicy{} },
		kindSet:    func() client.Object { return &appsv1.DaemonSet{} },
	}[r.kind]
	if made == nil {
		return r
	}
	if c.Value != nil {
		r.now = made()
		must(json.Unmarshal(c.Value, r.now))
	}
	at := r.kind + "/" + r.key
	if all := j.past[at]; len(all) > 0 {
		r.before = all[len(all)-1].object
	} else if old := c.Before(); old != nil { // from before the first look
		r.before = made()
		must(json.Unmarshal(old, r.before))
		j.past[at] = append(j.past[at], version{0, r.before})
	}
	j.past[at] = append(j.past[at], version{c.Revision, r.now})
	return r
}

// both are the object of a write and the one before, if they are of a type; either may be nil.
func both[T client.Object](r *write) (now, before T, ok bool) {
	now, isNow := r.now.(T)
	before, isBefore := r.before.(T)
	return now, before, isNow || isBefore
}

// seen are the versions of an object of which the operator may know: that of its cache when its
// pass began and all later ones. Nil: there was none.
func seen[T client.Object](j *judge, kind, key string) (all []T) {
	past := j.past[kind+"/"+key]
	if len(past) == 0 || past[0].revision > j.known[kind] {
		all = make([]T, 1)
	}
	for i, v := range past {
		if i+1 == len(past) || past[i+1].revision > j.known[kind] {
			o, _ := v.object.(T)
			all = append(all, o)
		}
	}
	return all
}

// last is the newest version; nil: there is none.
func last[T client.Object](j *judge, kind, key string) (object T) {
	if past := j.past[kind+"/"+key]; len(past) > 0 {
		object, _ = past[len(past)-1].object.(T)
	}
	return object
}

// modules are the Module's versions of which the operator may know. A nil one: there was none.
func (j *trial) modules() []*v1beta1.Module {
	return seen[*v1beta1.Module](j.judge, kindModule, j.key())
}

// passed notes that a controller's pass has ended.
func (j *judge) passed(err error) {
	j.passes++
	for _, t := range j.all() {
		if j.w.actor == "module" && j.request == t.key() && err == nil && j.alone {
			t.noteWanted()
			j.w.limits.Looked(t.name)
			t.judged(func(p *Promise) string {
				if p.pass == nil {
					return ""
				}
				return p.pass(t)
			})
		}
	}
}

// noteWanted notes which nodes a pass saw selected.
func (j *trial) noteWanted() {
	modules := j.modules()
	if len(modules) == 0 || paused(modules[0]) {
		return
	}
	for _, m := range j.w.nodes {
		if nodes := seen[*corev1.Node](j.judge, kindNode, m.name); len(nodes) > 0 && selects(modules[0], nodes[0]) {
			j.wanted[m.name] = j.w.clock.Now()
		}
	}
}

func every[T any](all []T, is func(T) bool) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(one T) bool { return !is(one) })
}

// paused says whether an annotation pauses the Module.
func paused(m *v1beta1.Module) bool {
	if m == nil {
		return false
	}
	_, is := m.Annotations[v1beta1.PausedAnnotation]
	return is
}

// matches says whether the Module's selector chooses a node, and no taint asks for the unload.
func matches(m *v1beta1.Module, n *corev1.Node) bool {
	if m == nil || n == nil || m.Spec.ModuleLoader == nil || taints.AskForUnload(n) {
		return false
	}
	for k, v := range m.Spec.Selector {
		if n.Labels[k] != v {
			return false
		}
	}
	return true
}

// selects says whether the Module is to be loaded on a node: histories' mappings match every kernel
// or none.
func selects(m *v1beta1.Module, n *corev1.Node) bool {
	return matches(m, n) && m.DeletionTimestamp == nil && m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp == "^.+$"
}

// imageIn is the image that the Module names; empty: none.
func imageIn(m *v1beta1.Module) string {
	if m == nil || m.Spec.ModuleLoader == nil {
		return ""
	}
	return m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage
}

// loads says whether an order is one to load.
func loads(o *v1beta1.NodeModuleSpec) bool { return o != nil && o.State != v1beta1.NodeModuleAbsent }

// unloads says whether an order is one to unload.
func unloads(o *v1beta1.NodeModuleSpec) bool { return o != nil && o.State == v1beta1.NodeModuleAbsent }

func say(o *v1beta1.NodeModuleSpec) string {
	if o == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s remove=%v parameters=%v paused=%t policy=%s next=%t", o.State, images.Short(o.Config.ContainerImage),
		o.Config.InTreeModulesToRemove, o.Config.Modprobe.Parameters, o.Paused, o.UnloadPolicy, o.Next != nil)
}

func (s subject) tried(n *v1beta1.NodeModulesConfig) string {
	a := s.attemptOf(n)
	if a == nil {
		return "none"
	}
	return fmt.Sprintf("%s/%s %s", a.State, a.Reason, a.Message)
}

// firstLoads says whether a node's first order takes in-tree modules out, and nothing has come of
// it yet.
func (j *trial) firstLoads(m *machine) bool {
	past := j.past[kindOrders+"/"+m.name]
	for i := len(past) - 1; i >= 0; i-- {
		n, _ := past[i].object.(*v1beta1.NodeModulesConfig)
		switch o := j.orderOf(n); {
		case j.liveIn(n) != nil:
			return false
		case o == nil:
			return i+1 < len(past) && j.live(m) == ""
		case !loads(o) || o.Paused || waitsForBoot(*o) || len(o.Config.InTreeModulesToRemove) == 0:
			return false
		}
	}
	return len(past) > 0 && j.live(m) == ""
}
