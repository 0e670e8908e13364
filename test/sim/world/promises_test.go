// SPDX-License-Identifier: Apache-2.0

package world

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/test/sim/images"
)

// doctor changes what the judge is shown of a world, behind the product's back.
type doctor struct {
	t *testing.T
	*World

	request string // of the operator's passes
}

// asked names the promises that are broken.
func asked(ask func(*Promise) string) (broken []string) {
	for i := range Promises {
		if ask(&Promises[i]) != "" {
			broken = append(broken, Promises[i].Name)
		}
	}
	return broken
}

// called shows a call on n0, under an order that is made of its own; a nil change: without an
// order.
func (d *doctor) called(change func(*v1beta1.NodeModuleSpec), what, module, image string, parameters ...string) []string {
	m := d.nodes[0]
	o := nic.orderOf(m.shown).DeepCopy()
	if change == nil {
		o = nil
	} else {
		change(o)
	}
	c := &fake.Call{Time: d.Now(), Call: what, Module: module, Params: parameters, For: nic.key()}
	if image != "" {
		info, err := kmod.Read(images.Content(image, images.Releases[0]))
		must(err)
		c.BuildID = info.BuildID
	}
	return asked(func(p *Promise) string {
		if p.call == nil {
			return ""
		}
		return p.call(&call{d.trial(), m, d.judge.kernelOf(m.name), o, c, image})
	})
}

// wrote shows a write that makes an object another.
func (d *doctor) wrote(actor, kind, key string, object client.Object) []string {
	at := kind + "/" + key
	r := &write{kind: kind, key: key, actor: actor, now: object}
	revision := int64(1 << 40)
	if past := d.judge.past[at]; len(past) > 0 {
		r.before = past[len(past)-1].object
		revision = max(revision, past[len(past)-1].revision+1)
	}
	d.judge.past[at] = append(d.judge.past[at], version{revision, object})
	d.judge.request = d.request
	return asked(func(p *Promise) string {
		text := ""
		for _, t := range d.judge.all() {
			text += t.asked(p, r)
		}
		return text
	})
}

// trial is that of the first Module.
func (d *doctor) trial() *trial { return d.judge.all()[0] }

// known lets the operator have seen all.
func (d *doctor) known() {
	for kind := range cached {
		d.judge.known[kind] = 1 << 50
	}
}

func (d *doctor) orders(actor, node string, change func(*v1beta1.NodeModulesConfig)) []string {
	o := last[*v1beta1.NodeModulesConfig](&d.judge, kindOrders, node).DeepCopy()
	change(o)
	return d.wrote(actor, kindOrders, node, o)
}

func (d *doctor) order(node string, change func(*v1beta1.NodeModuleSpec)) []string {
	return d.orders("module", node, func(n *v1beta1.NodeModulesConfig) { change(nic.orderOf(n)) })
}

func (d *doctor) image(node string, a uint8) []string {
	return d.order(node, func(o *v1beta1.NodeModuleSpec) { o.Config.ContainerImage = nic.image(a) })
}

func (d *doctor) absent(reason string, finalizers ...string) []string {
	return d.orders("module", "n0", func(n *v1beta1.NodeModulesConfig) {
		n.Finalizers = finalizers
		nic.orderOf(n).State, nic.orderOf(n).Reason = v1beta1.NodeModuleAbsent, reason
	})
}

func (d *doctor) attempt(a v1beta1.NodeModuleAttempt) []string {
	a.Name, a.Namespace = nic.name, namespace
	return d.orders("n0's agent", "n0", func(n *v1beta1.NodeModulesConfig) { n.Status.Attempts = []v1beta1.NodeModuleAttempt{a} })
}

func (d *doctor) modified(actor string, change func(*v1beta1.Module)) []string {
	m := last[*v1beta1.Module](&d.judge, kindModule, nic.key()).DeepCopy()
	change(m)
	return d.wrote(actor, kindModule, nic.key(), m)
}

func (d *doctor) status(change func(*v1beta1.ModuleStatus)) []string {
	return d.modified("status", func(m *v1beta1.Module) { change(&m.Status) })
}

func (d *doctor) node(actor string, change func(*corev1.Node)) []string {
	n := last[*corev1.Node](&d.judge, kindNode, "n0").DeepCopy()
	change(n)
	return d.wrote(actor, kindNode, "n0", n)
}

func (d *doctor) carrier(image, node, delivery string) []string {
	return d.wrote("module", kindPod, namespace+"/x", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.CarrierPrefix + "x",
		Annotations: map[string]string{v1beta1.DeliveryAnnotation: delivery}}, Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image}}}}}})
}

// rest shows a world at rest that is changed before.
func (d *doctor) rest(change func(*stillness)) []string {
	s := d.trial().still()
	if s.module != nil {
		s.module = s.module.DeepCopy()
	}
	for i := range s.nodes {
		s.nodes[i].node, s.nodes[i].order = s.nodes[i].node.DeepCopy(), s.nodes[i].order.DeepCopy()
	}
	change(s)
	return asked(func(p *Promise) string {
		if p.rest == nil {
			return ""
		}
		return p.rest(s)
	})
}

// cut shows n0 after a power cut that has changed it.
func (d *doctor) cut(change func(*machine)) []string {
	m := d.nodes[0]
	was := m.remember()
	change(m)
	return asked(func(p *Promise) string {
		text, l := "", &lit{d.trial(), m, was, nic.orderOf(was.shown)}
		if p.lit != nil {
			text = p.lit(l)
		}
		if p.back != nil {
			text += p.back(l)
		}
		return text
	})
}

// lost makes all that is told of n0 say that it has nothing.
func (s *stillness) lost() {
	delete(s.nodes[0].node.Labels, v1beta1.ReadyLabel(namespace, nic.name))
	s.nodes[0].tell(corev1.ConditionFalse)
	s.module.Status.ModuleLoader.AvailableNumber--
	set(&s.module.Status, "Ready", metav1.ConditionFalse, "Loading", "x")
	set(&s.module.Status, "Loaded", metav1.ConditionFalse, "Loading", "x")
}

// tell makes the node's condition another; empty: it has none.
func (n *stillNode) tell(status corev1.ConditionStatus) {
	n.node.Status.Conditions = slices.DeleteFunc(n.node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1beta1.NodeConditionKernelModules
	})
	if status != "" {
		n.node.Status.Conditions = append(n.node.Status.Conditions,
			corev1.NodeCondition{Type: v1beta1.NodeConditionKernelModules, Status: status})
	}
}

func set(s *v1beta1.ModuleStatus, condition string, status metav1.ConditionStatus, reason, message string) {
	c := meta.FindStatusCondition(s.Conditions, condition)
	if c == nil {
		s.Conditions = append(s.Conditions, metav1.Condition{Type: condition})
		c = &s.Conditions[len(s.Conditions)-1]
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

func setImage(a uint8) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = nic.image(a)
		m.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(1 + int32(a)%2))
	}
}

func noLoader(m *v1beta1.Module) { m.Spec.ModuleLoader = nil }

func noOrder(n *v1beta1.NodeModulesConfig) { n.Spec.Modules = nil }

func notLive(n *v1beta1.NodeModulesConfig) { n.Status.Modules = nil }

func deleting(m *v1beta1.Module) { m.DeletionTimestamp = &metav1.Time{Time: epoch} }

// gone shows the Module's end.
func (d *doctor) gone() []string { return d.wrote("module", kindModule, nic.key(), nil) }

// TestPromisesCanFail breaks each promise, and no other.
func TestPromisesCanFail(t *testing.T) {
	maps.Copy(breaks, pluginBreaks)
	maps.Copy(breaks, powerBreaks)
	maps.Copy(breaks, loadBreaks)
	rows := slices.Collect(maps.Keys(breaks))
	for _, p := range Promises {
		if breaks[p.Name] == nil {
			t.Errorf("%s is not broken here", p.Name)
		}
		rows = slices.DeleteFunc(rows, func(row string) bool { return row == p.Name })
		if p.Text == "" || p.Source == "" {
			t.Errorf("%s does not say what is promised, and where", p.Name)
		}
	}
	if len(rows) > 0 {
		t.Errorf("no such promises: %v", rows)
	}
	for _, row := range slices.Sorted(maps.Keys(breaks)) {
		t.Run(row, func(t *testing.T) {
			if got := breaks[row](healthy(t)); !slices.Equal(got, []string{row}) {
				t.Errorf("broken: %v", got)
			}
		})
	}
}

func TestHealthyBreaksNothing(t *testing.T) {
	if got := healthy(t).rest(func(*stillness) {}); len(got) > 0 {
		t.Errorf("broken: %v", got)
	}
}

// healthy is a world whose three nodes have the kernel module.
func healthy(t *testing.T) *doctor {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "drover-sim-")
	if err != nil {
		t.Fatal(err)
	}
	w, err := server(t).New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.act("begin", func() { w.create(nic, 0) })
	w.rest(10 * time.Minute)
	if w.found != nil {
		t.Fatal(w.found)
	}
	return &doctor{t, w, nic.key()}
}

// TestNotReadyCountsForUnloads: a node that is no longer selected does not unload while another one
// is away, unless a person has confirmed that.
func TestNotReadyCountsForUnloads(t *testing.T) {
	for _, test := range []struct {
		confirmed, away bool
		want            []string
	}{
		{false, true, []string{"not-ready-counts"}},
		{true, true, nil},
		{false, false, nil},
	} {
		d := healthy(t)
		d.clock.Step(time.Hour)
		if test.confirmed {
			d.modified("author", func(m *v1beta1.Module) { m.Annotations = map[string]string{v1beta1.ConfirmDeselectionAnnotation: "x"} })
		}
		d.node("administrator", func(n *corev1.Node) { n.Labels[testLabel] = "no" })
		if test.away {
			n := last[*corev1.Node](&d.judge, kindNode, "n1").DeepCopy()
			n.Status.Conditions = nil
			d.wrote("n1's kubelet", kindNode, "n1", n)
		}
		d.known()
		if got := d.absent("Deselected", orderFinalizer); !slices.Equal(got, test.want) {
			t.Errorf("confirmed: %t, another is away: %t: broken: %v", test.confirmed, test.away, got)
		}
	}
}
