// SPDX-License-Identifier: Apache-2.0

package world

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/test/sim/history"
	"github.com/drover-project/drover/test/sim/kubelet"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// module is a Module as the API server has it; nil: there is none.
func (w *World) module(s subject) *v1beta1.Module {
	m := &v1beta1.Module{}
	if !w.get(m, client.ObjectKey{Namespace: namespace, Name: s.name}) {
		return nil
	}
	return m
}

// edit is what the Module's author does. A Module that is being deleted is left alone.
func (w *World) edit(s subject, change func(*v1beta1.Module)) {
	m := w.module(s)
	if m == nil || m.DeletionTimestamp != nil {
		return
	}
	change(m)
	m.ManagedFields = nil
	if err := w.admin.Update(w.ctx, m, client.FieldOwner("author")); apierrors.IsInvalid(err) {
		w.Trace("      refused: %v", err)
	} else {
		must(err)
	}
}

func (s subject) loader(a uint8) *v1beta1.ModuleLoaderSpec {
	return &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{Modprobe: v1beta1.ModprobeSpec{ModuleName: s.name},
		KernelMappings: []v1beta1.KernelMapping{{Regexp: "^.+$", ContainerImage: s.image(a)}}}}
}

// create makes a Module with an image of a number, if there is none.
func (w *World) create(s subject, a uint8) {
	if w.module(s) != nil {
		return
	}
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}, Spec: v1beta1.ModuleSpec{
		Selector: map[string]string{testLabel: "yes"}, ModuleLoader: s.loader(a),
		Rollout: &v1beta1.RolloutSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}}}
	must(w.admin.Create(w.ctx, m, client.FieldOwner("author")))
}

// delete begins a Module's deletion.
func (w *World) delete(s subject) {
	if m := w.module(s); m != nil {
		must(client.IgnoreNotFound(w.admin.Delete(w.ctx, m)))
	}
}

// edit changes the Node, if there is one.
func (m *machine) edit(change func(*corev1.Node)) {
	n := &corev1.Node{}
	if m.w.get(n, client.ObjectKey{Name: m.name}) {
		change(n)
		n.ManagedFields = nil
		must(m.w.admin.Update(m.w.ctx, n, client.FieldOwner("administrator")))
	}
}

// hold has a process use a kernel module, or no process any longer.
func (m *machine) hold(module string, on bool) {
	if on {
		_ = m.kernel.Hold(module) // there may be none
		return
	}
	kubelet.LetGo(m.kernel, module, func(u host.User) bool { return u == host.User{} })
}

// held says whether a kernel module is in use.
func (m *machine) held(module string) bool {
	s, ok, err := m.kernel.Module(module)
	return err == nil && ok && s.State == host.StateLive && s.RefCount > 0 // one that is coming counts itself
}

// deliver brings an event to the caches of the operator's kind of a number.
func (w *World) deliver(a uint8) {
	kinds := w.op.Kinds()
	if w.op.Deliver(kinds[int(a)%len(kinds)]) {
		w.Steps++
	}
}

// pass has a controller take its next request; false: none is due.
func (w *World) pass(i int) bool {
	w.judge.writes()
	w.actor = w.op.Controllers()[i]
	w.judge.begins()
	r, ok, err := w.op.Pass(i)
	if ok {
		w.Steps++
		w.judge.request = r.String()
		w.judge.writes()
		w.judge.passed(err)
	}
	w.judge.ends()
	if err != nil {
		w.Trace("      %s %s: %v", w.op.Controllers()[i], r, err)
	}
	return ok
}

// meanwhile is an event that comes before a request of a pass or a round, after so many others.
type meanwhile struct {
	after int
	event history.Event
}

// interrupt lets others act before a request, if it is time: a pass of the operator is not alone,
// nor a round of an agent.
func (w *World) interrupt(by **meanwhile) {
	m := *by
	if m == nil {
		return
	}
	if m.after > 0 {
		m.after--
		return
	}
	*by = nil
	w.judge.interrupted()
	who := w.actor
	w.Trace("    meanwhile:")
	w.Do(m.event)
	w.actor = who
}

// act runs what an actor does, and judges what it wrote.
func (w *World) act(who string, do func()) {
	w.judge.writes()
	w.actor = who
	do()
	w.judge.writes()
}

// look is a round of a node's agent.
func (w *World) look(m *machine) {
	w.Steps++
	w.act(m.name+"'s agent", m.look)
}

// round lets all do what is due, and time go on to what is due next; false: nothing was.
func (w *World) round() (busy bool) {
	for _, kind := range w.op.Kinds() {
		for w.op.Deliver(kind) {
			w.Steps++
			busy = true
		}
	}
	for i := range w.op.Controllers() {
		for n := 0; n < 8 && w.pass(i); n++ {
			busy = true
		}
	}
	w.act("kube-controller-manager", func() {
		for w.manager.DaemonSets(w.ctx) || w.manager.Nodes(w.ctx) || w.manager.Collect(w.ctx) {
			busy = true
		}
	})
	for _, m := range w.nodes {
		w.act(m.name+"'s kubelet", func() {
			for m.kubelet() {
				w.Steps++
				busy = true
			}
		})
		for m.show() {
			busy = true
		}
		if !m.due.After(w.clock.Now()) {
			w.look(m)
		}
	}
	w.judge.writes()
	next := w.clock.Now().Add(time.Minute)
	if at := w.op.Next(); !at.IsZero() && at.Before(next) {
		next = at
	}
	for _, m := range w.nodes {
		if m.due.Before(next) {
			next = m.due
		}
	}
	if next.After(w.clock.Now()) {
		w.clock.SetTime(next)
	}
	return busy
}

// rest lets a span of time go by, in larger steps where nothing happens.
func (w *World) rest(span time.Duration) {
	end, idle := w.clock.Now().Add(span), 0
	for n := 0; w.clock.Now().Before(end) && w.found == nil && n < 600; n++ {
		busy := w.round()
		w.notice(0)
		if busy {
			idle = 0
			continue
		}
		// Agents look every 15 seconds; without an event, that finds nothing new.
		if idle++; idle > 20 {
			w.clock.Step(10 * time.Minute)
			idle = 19
		}
	}
}

// Run makes a history happen, has it come to rest, and returns the first promise that was broken;
// nil: none.
func (w *World) Run(events []history.Event) *Violation {
	w.act("begin", func() { w.create(nic, 0) })
	for i, e := range events {
		w.Do(e)
		w.notice(i + 1)
		if w.found != nil {
			return w.found
		}
	}
	w.settle()
	return w.found
}

// settle ends all faults, and looks at what becomes of it.
func (w *World) settle() {
	w.Trace("--- all faults end")
	w.fault, w.meanwhile, w.during = NoFault, nil, nil
	w.setClock(0)
	for _, m := range w.nodes {
		w.act("end", m.mend)
	}
	w.act("end", w.unpause)
	w.act("end", w.retry)
	w.act("end", func() { w.dropPolicy(0); w.dropPolicy(1) })
	w.leave()
	w.rest(3 * time.Hour)
	w.act("end", w.confirm)
	w.taintsRest()
	w.act("end", w.retry) // the first one was about the builds that orders named then
	w.rest(time.Hour)
	w.judge.look(w.judge.stills(), func(p *Promise) func(*stillness) string { return p.waits })
	w.boots()
	w.rest(2 * time.Hour)
	w.rested()
	if w.last != nil && w.found == nil {
		w.alone()
		w.rested()
	}
}

// rested asks the promises about what is at rest.
func (w *World) rested() {
	if w.found != nil {
		return
	}
	all := w.judge.stills()
	w.calm = []string{}
	passes := w.judge.passes
	for range 10 {
		w.round()
	}
	for _, s := range all {
		s.written, s.passes = w.calm, w.judge.passes-passes
	}
	w.judge.look(all, func(p *Promise) func(*stillness) string { return p.rest })
	w.calm = nil
}

// boots gives what waits for a boot one.
func (w *World) boots() {
	for range 2 {
		for _, m := range w.nodes {
			n := last[*v1beta1.NodeModulesConfig](&w.judge, kindOrders, m.name)
			if n != nil && slices.ContainsFunc(n.Spec.Modules, waitsForBoot) {
				w.act("end", func() { m.reboot("") })
				w.rest(20 * time.Minute)
			}
		}
	}
}

// alone has what was to come at rest happen, to a Module that all nodes have, in half of the
// cases while one is away. That one comes back later, and what taints a new one goes, by
// themselves, too. People do what is asked of them, and nothing else.
func (w *World) alone() {
	w.act("end", w.restore)
	w.rest(20 * time.Minute)
	for _, m := range w.nodes {
		clear(w.judge.kernelOf(m.name).Left)
	}
	if i := int(w.last.A) / nodes % (2 * nodes); i < nodes {
		w.act("end", func() { w.nodes[i].tell(corev1.ConditionUnknown) })
	}
	w.round()
	w.Do(*w.last)
	w.rest(time.Hour)
	for _, m := range w.nodes {
		w.act("end", func() { m.tell(corev1.ConditionTrue); m.untaint() })
	}
	w.rest(time.Hour)
	w.act("end", w.confirm)
	if slices.ContainsFunc(w.nodes, (*machine).tellsOfStrike) {
		w.act("end", w.askAgain)
	}
	w.rest(time.Hour)
	w.boots()
}

// retry has a person ask for another try, where a load has taken a node down.
func (w *World) retry() {
	if !slices.ContainsFunc(w.nodes, func(m *machine) bool { return m.cuts > 0 || w.judge.kernelOf(m.name).Hurt }) {
		return
	}
	w.askAgain()
}

// askAgain has a person ask for another try of all that failed.
func (w *World) askAgain() {
	for _, s := range subjects {
		w.annotate(s, func(m *v1beta1.Module) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.RetryAnnotation, w.Now().UTC().Format(time.RFC3339))
		})
	}
}

func waitsForBoot(o v1beta1.NodeModuleSpec) bool { return o.UnloadPolicy == v1beta1.UnloadOnReboot }

// unpause ends all pauses, also of a Module that is being deleted.
func (w *World) unpause() {
	for _, s := range subjects {
		w.annotate(s, func(m *v1beta1.Module) { delete(m.Annotations, v1beta1.PausedAnnotation) })
		w.edit(s, func(m *v1beta1.Module) { m.Spec.Rollout.Paused = false })
	}
}

// confirm lets many nodes lose a Module at once, where it waits for that.
func (w *World) confirm() {
	for _, s := range subjects {
		w.confirmOf(s)
	}
}

func (w *World) confirmOf(s subject) {
	if m := w.module(s); m != nil && slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return c.Reason == v1beta1.ReasonMassDeselection || strings.Contains(c.Message, v1beta1.ReasonMassDeselection)
	}) {
		w.annotate(s, func(m *v1beta1.Module) {
			m.Annotations = map[string]string{v1beta1.ConfirmDeselectionAnnotation: w.Now().UTC().Format(time.RFC3339)}
		})
	}
}

// annotate changes a Module's annotations, also if it is being deleted.
func (w *World) annotate(s subject, change func(*v1beta1.Module)) {
	if m := w.module(s); m != nil {
		change(m)
		m.ManagedFields = nil
		must(w.admin.Update(w.ctx, m, client.FieldOwner("author")))
	}
}

// leave has people's pods close what they have open, after a while in which they may be evicted.
func (w *World) leave() {
	w.rest(20 * time.Minute)
	for _, m := range w.nodes {
		w.act("end", m.pods.Leave)
	}
}
