// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/test/sim/history"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kubelet"
	"github.com/drover-project/drover/test/sim/limits"
	"github.com/drover-project/drover/test/sim/policies"
	"github.com/drover-project/drover/test/sim/taints"
)

// verb is a kind of event, and what happens.
type verb struct {
	name      string
	weight    int
	machinery bool
	do        func(w *World, a, b uint8)
}

// onModule has a verb change a Module.
func onModule(s subject, change func(m *v1beta1.Module, a, b uint8)) func(*World, uint8, uint8) {
	return func(w *World, a, b uint8) { w.edit(s, func(m *v1beta1.Module) { change(m, a, b) }) }
}

// loader has a verb change a Module's moduleLoader, if there is one.
func loader(s subject, change func(c *v1beta1.ModuleLoaderContainerSpec, a, b uint8)) func(*World, uint8, uint8) {
	return onModule(s, func(m *v1beta1.Module, a, b uint8) {
		if m.Spec.ModuleLoader != nil {
			change(&m.Spec.ModuleLoader.Container, a, b)
		}
	})
}

// onNode has a verb happen on a machine.
func onNode(do func(m *machine, b uint8)) func(*World, uint8, uint8) {
	return func(w *World, a, b uint8) { do(w.nodes[int(a)%nodes], b) }
}

// verbs are all that can happen.
var verbs = []verb{
	{"Deliver", 12, true, func(w *World, a, _ uint8) { w.deliver(a) }},
	{"Pass", 12, true, func(w *World, a, _ uint8) { w.pass(int(a) % len(w.op.Controllers())) }},
	{"Show", 6, true, onNode(func(m *machine, _ uint8) { m.show() })},
	{"Look", 8, true, onNode(func(m *machine, _ uint8) { m.w.look(m) })},
	{"Kubelet", 6, true, onNode(func(m *machine, _ uint8) { m.kubelet() })},
	{"Collect", 1, true, func(w *World, _, _ uint8) { w.manager.Collect(w.ctx) }},
	{"Tick", 6, true, func(w *World, a, _ uint8) { w.clock.Step(ticks[int(a)%len(ticks)]) }},
	{"Calm", 14, true, func(w *World, _, b uint8) {
		for range int(b)%6 + 1 {
			w.round()
		}
	}},
	{lull, 3, true, func(w *World, _, _ uint8) {
		for range 30 {
			w.round()
		}
	}},
	{"AtRest", 5, true, func(w *World, a, b uint8) {
		w.last = &history.Event{Verb: alone[int(b)%len(alone)], A: a, B: b / uint8(len(alone))}
	}},

	{"Image", 5, false, loader(nic, func(c *v1beta1.ModuleLoaderContainerSpec, a, _ uint8) {
		c.KernelMappings[0].ContainerImage = nic.image(a)
	})},
	{"Remove", 3, false, loader(nic, func(c *v1beta1.ModuleLoaderContainerSpec, _, b uint8) {
		c.InTreeModulesToRemove = [][]string{nil, {"stock"}, {"other", "stock"}}[int(b)%3]
	})},
	{"Parameters", 1, false, loader(nic, func(c *v1beta1.ModuleLoaderContainerSpec, a, _ uint8) {
		c.Modprobe.Parameters = [][]string{nil, {"a=1"}, {"a=2"}}[int(a)%3]
	})},
	{"UnloadPolicy", 2, false, loader(nic, func(c *v1beta1.ModuleLoaderContainerSpec, a, b uint8) {
		c.UnloadPolicy = []v1beta1.UnloadPolicy{v1beta1.UnloadOnReboot, v1beta1.UnloadWait}[int(a)%2]
		if b%2 == 1 {
			c.KernelMappings[0].ContainerImage = nic.image(b / 2)
		}
	})},
	{"Mapping", 1, false, loader(nic, func(c *v1beta1.ModuleLoaderContainerSpec, a, _ uint8) {
		c.KernelMappings[0].Regexp = []string{"^.+$", "^5\\."}[int(a)%2]
	})},
	{"Version", 1, false, loader(nic, func(c *v1beta1.ModuleLoaderContainerSpec, a, _ uint8) {
		c.Version = []string{"", "1", "2"}[int(a)%3]
	})},
	{"Loader", 1, false, onModule(nic, func(m *v1beta1.Module, a, b uint8) {
		m.Spec.ModuleLoader = nil
		if b%2 == 0 {
			m.Spec.ModuleLoader = nic.loader(a)
		}
	})},
	{"Selector", 1, false, onModule(nic, func(m *v1beta1.Module, a, _ uint8) {
		m.Spec.Selector = map[string]string{testLabel: []string{"yes", "no"}[int(a)%2]}
	})},
	{"Pause", 3, false, onModule(nic, func(m *v1beta1.Module, _, b uint8) { pauseIf(m, b%2 == 1) })},
	{"PauseRollout", 1, false, onModule(nic, func(m *v1beta1.Module, _, b uint8) { m.Spec.Rollout.Paused = b%2 == 1 })},
	{"MaxUnavailable", 1, false, onModule(nic, func(m *v1beta1.Module, a, _ uint8) {
		m.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(int32(a)%2 + 1))
	})},
	{"Delete", 1, false, func(w *World, _, _ uint8) { w.delete(nic) }},
	{"Create", 1, false, func(w *World, _, _ uint8) { w.create(nic, 0) }},

	{"Label", 2, false, onNode(func(m *machine, b uint8) {
		m.edit(func(n *corev1.Node) { n.Labels[testLabel] = []string{"yes", "no"}[int(b)%2] })
	})},
	{"NodeGone", 1, false, onNode(func(m *machine, _ uint8) {
		m.gone = true
		must(client.IgnoreNotFound(m.w.admin.Delete(m.w.ctx, &corev1.Node{ObjectMeta: named(m.name)})))
	})},
	{"NodeBack", 1, false, onNode(func(m *machine, b uint8) {
		if m.gone {
			must(m.register(taints.Newcomers[int(b)%len(taints.Newcomers)]...))
		}
	})},
	{"Cordon", 1, false, onNode(func(m *machine, b uint8) { m.edit(func(n *corev1.Node) { n.Spec.Unschedulable = b%2 == 1 }) })},
	{"Reboot", 3, false, onNode(func(m *machine, _ uint8) { m.reboot("") })},
	{"Hold", 2, false, onNode(func(m *machine, b uint8) { m.hold(nic.name, b%2 == 1) })},
	{"Users", 3, false, func(w *World, a, b uint8) {
		for i, m := range w.nodes {
			if int(a)%(nodes+2) == i || int(a)%(nodes+2) >= nodes { // on one, or on all
				m.pods.Use(w.ctx, namespace, nic.name, b%4 > 0)
			}
		}
		w.edit(nic, func(m *v1beta1.Module) { usedWhile(m, b/4) })
	}},
	{"HoldStock", 2, false, onNode(func(m *machine, b uint8) { m.hold("stock", b%2 == 1) })},
	{"Rmmod", 1, false, onNode(func(m *machine, b uint8) {
		_ = m.kernel.Rmmod([]string{nic.name, "stock"}[int(b)%2])
		m.w.judge.kernel(m)
	})},
	{"Insmod", 1, false, onNode(func(m *machine, b uint8) {
		_ = m.kernel.Insmod(images.Content(nic.image(b), m.release))
		m.w.judge.kernel(m)
	})},
	{"LoadFails", 2, false, onNode(func(m *machine, b uint8) {
		if int(b)/9%3 == 2 { // the host's own module does not come back, for the moment
			m.kernel.Script("finit_module", "stock", fake.Fault{Errno: "ENOMEM", Times: int(b)/3%3 + 1})
			return
		}
		m.kernel.Script("finit_module", nic.name, fake.Fault{Errno: []string{"ENOMEM", "ENODEV", "EEXIST"}[int(b)%3], Times: int(b)/3%3 + 1})
	})},
	{"UnloadFails", 1, false, onNode(func(m *machine, b uint8) {
		m.kernel.Script("delete_module", nic.name, fake.Fault{Errno: "EBUSY", Times: int(b)%3 + 1})
	})},

	{"WriteFails", 3, false, func(w *World, _, b uint8) { w.fault = Fault(b)%(faults-1) + 1 }},
	{"WatchGap", 1, false, func(w *World, a, _ uint8) {
		kinds := w.op.Kinds()
		w.op.Relist(kinds[int(a)%len(kinds)])
	}},
	{"Meanwhile", 4, false, func(w *World, a, b uint8) {
		w.meanwhile = &meanwhile{int(a) % 8, history.Event{Verb: between[int(b)%len(between)], A: a / 8, B: b / uint8(len(between))}}
	}},
	{"RestartOperator", 1, false, func(w *World, _, _ uint8) { must(w.startOperator()) }},
	{"RestartAgent", 2, false, onNode(func(m *machine, _ uint8) { must(m.start()) })},

	{"OtherCreate", 3, false, func(w *World, a, b uint8) {
		w.create(aux, a)
		w.edit(aux, func(m *v1beta1.Module) { otherSpec(m, b) })
	}},
	{"OtherImage", 3, false, loader(aux, func(c *v1beta1.ModuleLoaderContainerSpec, a, _ uint8) {
		c.KernelMappings[0].ContainerImage = aux.image(a)
	})},
	{"OtherSpec", 2, false, onModule(aux, func(m *v1beta1.Module, _, b uint8) { otherSpec(m, b) })},
	{"OtherUnloadPolicy", 1, false, loader(aux, func(c *v1beta1.ModuleLoaderContainerSpec, a, _ uint8) {
		c.UnloadPolicy = []v1beta1.UnloadPolicy{v1beta1.UnloadOnReboot, v1beta1.UnloadWait}[int(a)%2]
	})},
	{"OtherPause", 1, false, onModule(aux, func(m *v1beta1.Module, _, b uint8) { pauseIf(m, b%2 == 1) })},
	{"OtherDelete", 1, false, func(w *World, _, _ uint8) { w.delete(aux) }},
	{"OtherHold", 1, false, onNode(func(m *machine, b uint8) { m.hold(aux.name, b%2 == 1) })},
	{"OtherLoadFails", 1, false, onNode(func(m *machine, b uint8) {
		m.kernel.Script("finit_module", aux.name, fake.Fault{Errno: []string{"ENOMEM", "ENODEV", "EEXIST"}[int(b)%3], Times: int(b)/3%3 + 1})
	})},

	{"Policy", 2, false, func(w *World, a, b uint8) { w.policy(a, b) }},
	{"PolicyGone", 1, false, func(w *World, a, _ uint8) { w.dropPolicy(a) }},

	{"Kernel", 1, false, onNode(func(m *machine, b uint8) { m.reboot(images.Releases[int(b)%len(images.Releases)]) })},
	{"NotReady", 2, false, onNode(func(m *machine, b uint8) {
		m.tell([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionFalse}[int(b)%3])
	})},
	{"Taint", 2, false, onNode(func(m *machine, b uint8) {
		m.edit(func(n *corev1.Node) {
			n.Spec.Taints = slices.Clone(taints.Sets[int(b)%len(taints.Sets)])
		})
	})},
	{"NodeReplaced", 1, false, onNode(func(m *machine, b uint8) { m.replace(taints.Newcomers[int(b)%len(taints.Newcomers)]...) })},
	{"Panic", 1, false, onNode(func(m *machine, b uint8) {
		m.kernel.Script("finit_module", nic.name, fake.Fault{Panic: true, Dump: b/2%2 == 1, Times: int(b)%2 + 1})
	})},
	{"DiskFull", 1, false, onNode(func(m *machine, b uint8) {
		m.full = b%2 == 1
		must(m.start())
	})},
	{"CarrierFails", 2, false, onNode(func(m *machine, b uint8) { m.pods.Fail(kubelet.Pulling, ticks[int(b)%3+2]) })},
	{"Evict", 1, false, onNode(func(m *machine, _ uint8) { m.pods.Evict(m.w.ctx, false) })},

	{"DaemonSets", 4, true, func(w *World, _, _ uint8) { w.manager.DaemonSets(w.ctx) }},
	{"Plugin", 2, false, onModule(nic, func(m *v1beta1.Module, a, b uint8) { m.Spec.DevicePlugin = nic.plugin(a, b) })},
	{"PluginFails", 2, false, onNode(func(m *machine, b uint8) { m.pods.Fail(kubelet.Running, ticks[int(b)%3+2]) })},
	{"PluginStuck", 1, false, onNode(func(m *machine, b uint8) { m.pods.Fail(kubelet.Ending, ticks[int(b)%3+2]) })},
	{"PluginEvict", 1, false, onNode(func(m *machine, _ uint8) { m.pods.Evict(m.w.ctx, true) })},
	{"OtherPlugin", 2, false, onModule(aux, func(m *v1beta1.Module, a, b uint8) { m.Spec.DevicePlugin = aux.plugin(a, b) })},

	{"PowerCut", 2, false, onNode(func(m *machine, b uint8) { m.powerCut(b) })},
	{"PowerCutWhile", 3, false, func(w *World, a, b uint8) {
		w.nodes[int(a)%nodes].doom = &doom{sync: b%4 > 0, after: int(a) / nodes % 16, chance: b}
	}},
	{"ClockStep", 2, false, onNode(func(m *machine, b uint8) { m.setClock(skews[int(b)%len(skews)]) })},
	{"Hang", 1, false, onNode(func(m *machine, b uint8) {
		call := []string{"finit_module", "delete_module"}[int(b)%2]
		m.kernel.Script(call, nic.name, fake.Fault{Delay: []time.Duration{2 * time.Minute, 1000 * time.Hour}[int(b)/2%2], Times: 1})
	})},
	{"Oops", 1, false, onNode(func(m *machine, _ uint8) {
		m.kernel.Script("finit_module", nic.name, fake.Fault{Oops: true, Times: 1})
	})},
	{"OperatorClock", 1, false, func(w *World, _, b uint8) { w.setClock(skews[int(b)%len(skews)]) }},

	{"Retry", 1, false, func(w *World, _, _ uint8) { w.askAgain() }},
	{"AgentMeanwhile", 3, false, func(w *World, a, b uint8) {
		w.during = &meanwhile{int(a) % 4, history.Event{Verb: during[int(b)%len(during)], A: a / 4, B: b / uint8(len(during))}}
	}},

	{limits.Verb, 0, true, func(w *World, a, _ uint8) {
		w.limits.Nodes = int(a)%2 + 1
		must(w.startOperator())
	}},
}

// restore has all nodes have the first Module again.
func (w *World) restore() {
	for _, m := range w.nodes {
		if m.gone {
			must(m.register())
		}
		m.edit(func(n *corev1.Node) { n.Labels[testLabel] = "yes" })
	}
	w.create(nic, 0)
	w.edit(nic, func(m *v1beta1.Module) {
		m.Spec.Selector = map[string]string{testLabel: "yes"}
		if m.Spec.ModuleLoader == nil {
			m.Spec.ModuleLoader = nic.loader(0)
		}
		m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = "^.+$"
	})
}

// plugin is the device plugin that two numbers say; nil: none.
func (s subject) plugin(a, b uint8) *v1beta1.DevicePluginSpec {
	if b%4 == 0 {
		return nil
	}
	p := &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: s.pluginImage(a)}}
	if b/4%2 == 1 {
		p.Container.Env = []corev1.EnvVar{{Name: "A", Value: fmt.Sprint(b % 4)}}
	}
	if b/8%2 == 1 {
		p.Volumes = []corev1.Volume{{Name: "more", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	return p
}

// otherSpec says what the second Module has removed, and which nodes it selects.
func otherSpec(m *v1beta1.Module, b uint8) {
	m.Spec.Selector = []map[string]string{{testLabel: "yes"}, {}, {testLabel: "no"}}[int(b)/2%3]
	if m.Spec.ModuleLoader != nil {
		m.Spec.ModuleLoader.Container.InTreeModulesToRemove = [][]string{nil, {"stock"}}[int(b)%2]
	}
}

// usedWhile says which pods leave a node when its turn comes, and every other time has one come.
func usedWhile(m *v1beta1.Module, b uint8) {
	m.Spec.Rollout.Drain, m.Spec.Rollout.DrainOptions = v1beta1.DrainHolders, &v1beta1.DrainOptions{Force: true}
	if b%3 == 2 {
		m.Spec.Rollout.Drain, m.Spec.Rollout.DrainOptions = v1beta1.DrainNone, nil
	}
	if m.Spec.ModuleLoader != nil && b/3%2 == 1 {
		m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = nic.image(b / 6)
	}
}

// pauseIf pauses a Module by its annotation, or ends that.
func pauseIf(m *v1beta1.Module, is bool) {
	m.Annotations = nil
	if is {
		m.Annotations = map[string]string{v1beta1.PausedAnnotation: "sim"}
	}
}

// between are the events that can happen between two requests of a pass.
var between = []string{"Deliver", "Show", "Look", "Kubelet", "Collect", "Image", "Pause", "Label", "Delete", "Reboot",
	"NodeGone", "UnloadPolicy"}

// during are the events that can happen between two requests of an agent.
var during = []string{"Deliver", "Pass", "Kubelet", "Collect", "Image", "Pause", "Label", "Delete", "NodeGone", "UnloadPolicy", "Plugin"}

// lull is the verb by which a history gets to what takes minutes, such as a whole rollout. One
// that begins with it has the kernel module live on all nodes when something happens to them.
const lull = "Lull"

// alone are the events that can happen when all has come to rest: no other one makes up for a
// wake-up that this one should have caused.
var alone = []string{"Label", "Label", "NodeReplaced", "NodeGone", "Kernel", "Reboot", "Image", "Image", "Image", "Selector", "Mapping",
	"Loader", "Parameters", "Remove", "Version", "Plugin", "Delete", "OtherSpec"}

// allowed are what ModulePolicies of histories allow.
var allowed = []v1alpha1.ModulePolicySpec{
	{Images: []string{nic.image(0), nic.image(1), aux.image(0)}},
	{Images: []string{nic.image(2), "registry.example/aux*"}},
	{Images: []string{"registry.example/*"}},
	{Load: v1alpha1.Deny},
	{Modules: []string{"nic", "other"}},
	{Parameters: &v1alpha1.ModulePolicyParameters{Only: []string{"a=1"}}},
}

// policy makes one of two ModulePolicies what two numbers say.
func (w *World) policy(a, b uint8) {
	p := &v1alpha1.ModulePolicy{ObjectMeta: named(fmt.Sprint("p", a%2))}
	there := w.get(p, client.ObjectKeyFromObject(p))
	allowed[int(b)%len(allowed)].DeepCopyInto(&p.Spec)
	p.Spec.NodeSelector = []*v1alpha1.ModulePolicySelector{nil, {MatchLabels: map[string]string{testLabel: "yes"}},
		{MatchLabels: map[string]string{corev1.LabelHostname: "n0"}}}[int(a)/2%3]
	p.Spec.Mode = v1alpha1.PolicyEnforce
	if int(b)/len(allowed)%4 == 3 {
		p.Spec.Mode = v1alpha1.PolicyAudit
	}
	p.ManagedFields = nil
	if there {
		must(w.admin.Update(w.ctx, p, client.FieldOwner("administrator")))
	} else {
		must(w.admin.Create(w.ctx, p, client.FieldOwner("administrator")))
	}
}

// dropPolicy deletes one of two ModulePolicies.
func (w *World) dropPolicy(a uint8) {
	must(client.IgnoreNotFound(w.admin.Delete(w.ctx, &v1alpha1.ModulePolicy{ObjectMeta: named(fmt.Sprint("p", a%2))})))
}

func policyDenies(j *trial, o order) string {
	if !loads(o.now) || o.was != nil && policies.Same(&o.now.Config, &o.was.Config) {
		return ""
	}
	for _, p := range []string{"p0", "p1"} {
		denied := every(seen[*v1alpha1.ModulePolicy](j.judge, kindPolicy, p), func(p *v1alpha1.ModulePolicy) bool {
			return p != nil && p.Spec.Mode == v1alpha1.PolicyEnforce && !policies.Permits(&p.Spec, &o.now.Config) &&
				every(seen[*corev1.Node](j.judge, kindNode, o.m.name), func(n *corev1.Node) bool { return n != nil && policies.Governs(&p.Spec, n) })
		})
		if denied {
			return fmt.Sprintf("%s is ordered %s after %s, and the ModulePolicy %s does not allow that", o.m.name, say(o.now), say(o.was), p)
		}
	}
	return ""
}

var ticks = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, time.Minute, 6 * time.Minute}

// skews are how far clocks are off.
var skews = []time.Duration{0, time.Hour, -time.Hour}

// Verbs are all that can happen.
func Verbs() (all []history.Verb) {
	for _, v := range verbs {
		all = append(all, history.Verb{Name: v.name, Weight: v.weight, Machinery: v.machinery, Opens: v.name == lull})
	}
	return all
}

// Do makes one event happen, if it can.
func (w *World) Do(e history.Event) {
	w.Trace("%s", e)
	for _, v := range verbs {
		if v.name == e.Verb {
			w.act(e.Verb, func() { v.do(w, e.A, e.B) })
			return
		}
	}
	panic("no verb " + strings.TrimSpace(e.Verb))
}
