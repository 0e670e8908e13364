// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/test/sim/disk"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kubelet"
	"github.com/drover-project/drover/test/sim/states"
	"github.com/drover-project/drover/test/sim/taints"
)

// machine is a node: a kernel, an agent, its disk, and what its kubelet knows.
type machine struct {
	w      *World
	name   string
	dir    string
	kernel *fake.Host
	agent  agent.Stepper
	fuse   *fuse.Fuse
	at     int64 // the revision that the agent's watch has got to
	shown  *v1beta1.NodeModulesConfig
	due    time.Time // when the agent looks without a hint
	calls  int       // of the kernel's calls, how many were judged
	worked map[string]bool
	pods   *kubelet.Kubelet
	gone   bool // there is no Node object

	release string       // of the kernel
	store   *store.Store // as the agent has it
	ready   corev1.ConditionStatus
	since   metav1.Time // it is so
	full    bool        // the disk has no room for deliveries
	power
}

// death ends the agent in the middle of a call that took the node down.
type death struct{}

func (w *World) machine(i int) (*machine, error) {
	m := &machine{w: w, name: fmt.Sprint("n", i), worked: map[string]bool{},
		release: images.Releases[0], ready: corev1.ConditionTrue}
	m.dir = filepath.Join(w.dir, m.name)
	m.kernel = fake.New(fake.Options{Release: m.release, Clock: m.clock(), Tree: ownTree{m}, Died: func() { panic(death{}) }})
	m.pods = &kubelet.Kubelet{Cluster: w.server.cluster, Clock: skewed{w.clock, &m.ahead}, Kernel: m.kernel, Node: m.name,
		Dir: filepath.Join(m.dir, "pods"), Trace: func(format string, args ...any) { w.Trace(format, args...) }}
	if err := os.MkdirAll(m.pods.Dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if m.disk, err = disk.New(m.dir); err != nil {
		return nil, err
	}
	if err := m.own(); err != nil {
		return nil, err
	}
	if err := m.register(); err != nil {
		return nil, err
	}
	return m, m.start()
}

// ownTree is the folder of the modules of the kernel that runs.
type ownTree struct{ *machine }

// Open implements fs.FS.
func (t ownTree) Open(name string) (fs.File, error) { return images.Trees()[t.release].Open(name) }

// own loads the kernel's own modules, as udev does at a boot.
func (m *machine) own() error {
	for _, own := range images.Own {
		if err := m.kernel.Insmod(images.OwnContent(own, m.release)); err != nil {
			return err
		}
	}
	return nil
}

// register makes the Node, as a kubelet does.
func (m *machine) register(taints ...corev1.Taint) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{
		testLabel: "yes", corev1.LabelHostname: m.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
		Spec: corev1.NodeSpec{Taints: slices.Clone(taints)}}
	if err := m.w.admin.Create(m.w.ctx, node); err != nil {
		return err
	}
	m.gone = false
	return m.report()
}

// report writes the Node's status.
func (m *machine) report() error {
	node := &corev1.Node{}
	if !m.w.get(node, client.ObjectKey{Name: m.name}) {
		return nil
	}
	boot, err := m.kernel.BootID()
	if err != nil {
		return err
	}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: m.kernel.Release(), KubeletVersion: "v1.37.2", BootID: boot,
		ContainerRuntimeVersion: "containerd://2.1.4", OperatingSystem: "linux", Architecture: "amd64"}
	others := slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	node.Status.Conditions = append(others, corev1.NodeCondition{Type: corev1.NodeReady, Status: m.ready, LastTransitionTime: m.since})
	return m.w.admin.Status().Update(m.w.ctx, node)
}

// start starts a new process of the agent.
func (m *machine) start() error {
	m.close()
	clear(m.w.judge.kernelOf(m.name).Kept) // what the kernel refused is in an agent's memory
	if err := m.light(); err != nil {
		return err
	}
	o := store.Options{PodsDir: filepath.Join(m.dir, "pods"), Sync: m.sync, Clock: m.clock()}
	if m.full {
		o.MaxTotal = 1 // byte
	}
	var err error
	if m.store, err = store.New(m.w.ctx, filepath.Join(m.dir, "store"), o); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(m.dir, "fuse"), 0o700); err != nil {
		return err
	}
	if m.fuse, err = fuse.Open(filepath.Join(m.dir, "fuse"), m.sync); m.fuse == nil { // else it is empty, and the file aside
		return err
	}
	a, err := agent.New(agent.Options{NodeName: m.name, StateDir: filepath.Join(m.dir, "state"),
		Config: m.witnessed(), Sync: m.sync, Jitter: m.w.jitter,
		Parts: execute.Parts{Host: wired{m.kernel, m}, Modprobe: m.kernel, Store: m.store, Clock: m.clock(), Fuse: m.fuse}})
	if err != nil {
		return err
	}
	m.agent = agent.Stepper{Agent: a}
	m.agent.Begin()
	m.at, m.due, m.shown = m.w.etcd.Revision(), m.w.clock.Now(), nil
	if n := (&v1beta1.NodeModulesConfig{}); m.w.get(n, client.ObjectKey{Name: m.name}) {
		m.shown = n
	}
	m.shows(m.shown)
	return nil
}

func (m *machine) close() {
	if m.fuse != nil {
		_ = m.fuse.Close()
	}
}

// show brings the next change of the orders to the agent; false: it has seen all.
func (m *machine) show() bool {
	key := m.w.server.cluster.API.Prefix(orders) + m.name
	changes, err := m.w.etcd.Since(m.at, key)
	must(err)
	for i := range changes {
		m.at = changes[i].Revision
		if changes[i].Key != key {
			continue
		}
		m.shown = nil
		if changes[i].Value != nil {
			m.shown = &v1beta1.NodeModulesConfig{}
			must(json.Unmarshal(changes[i].Value, m.shown))
			m.shown.ResourceVersion = fmt.Sprint(changes[i].Revision)
		}
		m.shows(m.shown)
		m.due = m.w.clock.Now()
		return true
	}
	return false
}

// look is a round of the agent's loop.
func (m *machine) look() {
	defer m.w.judge.kernel(m)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case death: // the kernel has booted again
			m.booted()
		default:
			panic(r)
		}
	}()
	next, err := m.agent.Look(m.w.ctx)
	if err != nil {
		m.w.Trace("      agent %s: %v", m.name, err)
		next = 5 * time.Second
	}
	m.due = m.w.clock.Now().Add(next)
}

// kubelet does one thing for the node's pods; false: there was nothing to do.
func (m *machine) kubelet() bool { return m.ready == corev1.ConditionTrue && m.pods.Step(m.w.ctx) }

// reboot is an orderly one: the kernel forgets, the disk does not. An empty release: the same
// kernel boots.
func (m *machine) reboot(release string) {
	m.release = cmp.Or(release, m.release)
	m.kernel.Reboot(release)
	m.booted()
}

// booted is what follows a boot.
func (m *machine) booted() {
	m.pods.Booted()
	m.w.judge.kernel(m)
	must(m.own())
	must(m.report())
	must(m.start())
	m.powered()
}

// replace puts another machine in the place of this one, with the same name.
func (m *machine) replace(taints ...corev1.Taint) {
	must(client.IgnoreNotFound(m.w.admin.Delete(m.w.ctx, &corev1.Node{ObjectMeta: named(m.name)})))
	m.close()
	must(os.RemoveAll(m.dir))
	must(os.MkdirAll(filepath.Join(m.dir, "pods"), 0o755))
	must(m.anew())
	m.pods.Replaced()
	m.kernel.Mend()
	m.kernel.Reboot("")
	m.w.judge.kernel(m)
	k := m.w.judge.kernelOf(m.name)
	clear(k.Worked)
	clear(k.Struck)
	must(m.own())
	must(m.register(taints...))
	must(m.start())
}

// mend ends all that is wrong with the node.
func (m *machine) mend() {
	m.kernel.Mend()
	clear(m.w.judge.kernelOf(m.name).Left)
	for _, module := range slices.Concat(images.Names, images.Own) {
		m.hold(module, false)
	}
	m.pods.Mend()
	m.doom = nil
	m.recover()
	m.tell(corev1.ConditionTrue)
	m.untaint()
	if m.full {
		m.full = false
		must(m.start())
	}
}

// untaint takes off what the verbs put on.
func (m *machine) untaint() {
	m.edit(func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taints.Others })
	})
}

// taintsRest looks at the nodes that are asked to unload by a taint, and then takes it off: another
// one keeps off a load for a while. It leaves out what a person loaded, and what a Node had that
// was deleted: no order is about that.
func (w *World) taintsRest() {
	if !slices.ContainsFunc(w.nodes, func(m *machine) bool { return taints.AskForUnload(last[*corev1.Node](&w.judge, kindNode, m.name)) }) {
		return
	}
	w.rest(time.Hour)
	for _, t := range w.judge.all() {
		t.tainted = slices.DeleteFunc(t.still().nodes, func(n stillNode) bool {
			return !taints.AskForUnload(n.node) || n.order == nil && (!t.loadedByAgent(n.m) || t.wasGone(n.m))
		})
	}
	for _, then := range [][]corev1.Taint{taints.Sets[1], nil} {
		for _, m := range w.nodes {
			w.act("end", func() { m.edit(func(n *corev1.Node) { n.Spec.Taints = then }) })
		}
		w.rest(time.Hour)
	}
}

// taintsUnload leaves out what is to go with the next boot.
func taintsUnload(s *stillness) string {
	for _, n := range s.judge.tainted {
		if loads(n.order) || n.live != "" && (n.order == nil || !waitsForBoot(*n.order)) {
			return fmt.Sprintf("%s has a taint that asks for the unload, and is ordered %s; live %q; attempt %s", n.m.name, say(n.order),
				images.Short(n.live), s.judge.tried(n.config))
		}
	}
	return ""
}

// tell has the node's Ready condition say something else.
func (m *machine) tell(ready corev1.ConditionStatus) {
	if m.ready != ready {
		m.ready, m.since = ready, metav1.NewTime(m.w.clock.Now())
		must(m.report())
	}
}

// orders are what agents watch.
var orders = schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "nodemodulesconfigs"}

func agentUser(node string) user.Info {
	return &user.DefaultInfo{Name: "system:serviceaccount:drover-system:drover-agent", Groups: []string{user.AllAuthenticated},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}}}
}

func (w *World) machineOf(node string) *machine {
	i := slices.IndexFunc(w.nodes, func(m *machine) bool { return m.name == node })
	if i < 0 {
		return nil
	}
	return w.nodes[i]
}

// notice notes the states that nodes are in, after so many events; 0: at the history's end.
func (w *World) notice(events int) {
	for _, t := range w.judge.all() {
		for _, m := range w.nodes {
			state := t.situation(m).State()
			if _, has := w.Seen[state]; !has {
				w.Seen[state] = events
			}
		}
	}
}

// situation is a node and the Module, as they are.
func (j *trial) situation(m *machine) (s states.Situation) {
	module := last[*v1beta1.Module](j.judge, kindModule, j.key())
	node := last[*corev1.Node](j.judge, kindNode, m.name)
	config := last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name)
	s.Selected, s.Paused = module != nil && selects(module, node), paused(module)
	if module != nil {
		s.Paused = s.Paused || module.Spec.Rollout != nil && module.Spec.Rollout.Paused
		s.OnReboot = module.Spec.ModuleLoader != nil && module.Spec.ModuleLoader.Container.UnloadPolicy == v1beta1.UnloadOnReboot
	}
	switch live := j.live(m); {
	case live == "":
	case !j.loadedByAgent(m):
		s.Live = states.ByHand
	case live == imageIn(module):
		s.Live = states.Asked
	default:
		s.Live = states.Another
	}
	switch order := j.orderOf(config); {
	case order == nil:
	case unloads(order):
		s.Order = states.Unload
	case order.Config.ContainerImage == imageIn(module):
		s.Order = states.Current
	default:
		s.Order = states.Outdated
	}
	switch {
	case node == nil:
	case m.ready != corev1.ConditionTrue:
		s.Node = states.NotReady
	default:
		s.Node = states.Ready
	}
	if a := j.attemptOf(config); a != nil {
		s.Attempt = a.State
	}
	return s
}

// tellsOfStrike says whether the agent says that a load took the node down.
func (m *machine) tellsOfStrike() bool {
	n := last[*v1beta1.NodeModulesConfig](&m.w.judge, kindOrders, m.name)
	return n != nil && slices.ContainsFunc(n.Status.Attempts, func(a v1beta1.NodeModuleAttempt) bool { return a.Strike != nil })
}
