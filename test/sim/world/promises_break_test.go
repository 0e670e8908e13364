// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kernels"
	"github.com/drover-project/drover/test/sim/taints"
)

type spec = v1beta1.NodeModuleSpec

func same(*spec) {}

// breaks breaks each promise.
var breaks = map[string]func(*doctor) []string{
	"no-unasked-unload": func(d *doctor) []string { return d.called(nil, "delete_module", nic.name, nic.image(0)) },
	"no-load-against-order": func(d *doctor) []string {
		return d.called(func(o *spec) { o.State = v1beta1.NodeModuleAbsent }, "finit_module", nic.name, nic.image(0))
	},
	"no-stranger": func(d *doctor) []string { return d.called(same, "finit_module", nic.name, nic.image(1)) },
	"parameters": func(d *doctor) []string {
		return d.called(func(o *spec) { o.Config.Modprobe.Parameters = []string{"a=1"} }, "finit_module", nic.name, nic.image(0), "a=2")
	},
	"pause-touches-nothing": func(d *doctor) []string {
		return d.called(func(o *spec) { o.Paused = true }, "delete_module", nic.name, nic.image(0))
	},
	"on-reboot-keeps": func(d *doctor) []string {
		return d.called(func(o *spec) { o.UnloadPolicy = v1beta1.UnloadOnReboot }, "delete_module", nic.name, nic.image(0))
	},
	"only-named-leave": func(d *doctor) []string { return d.called(same, "delete_module", "stock", "") },
	"all-or-none-leave": func(d *doctor) []string {
		d.nodes[0].hold("stock", true)
		d.judge.kernelOf("n0").Kept["stock"] = true
		return d.called(func(o *spec) { o.Config.InTreeModulesToRemove = []string{"other", "stock"} }, "delete_module", "other", "")
	},
	"in-tree-leaves-first": func(d *doctor) []string {
		return d.called(func(o *spec) {
			o.Config.ContainerImage, o.Config.InTreeModulesToRemove = nic.image(1), []string{"stock"}
		}, "finit_module", nic.name, nic.image(1))
	},

	"kernel-fits": func(d *doctor) []string {
		d.nodes[0].release = images.Releases[1]
		return d.called(same, "finit_module", nic.name, nic.image(0))
	},
	"no-load-after-strike": func(d *doctor) []string {
		m := d.nodes[0]
		d.judge.kernelOf("n0").Struck[m.kernel.Live()[nic.name]] = kernels.Strike{At: d.Now(), Until: d.Now().Add(time.Minute), Row: 1}
		return d.called(same, "finit_module", nic.name, nic.image(0))
	},
	"image-before-unload": func(d *doctor) []string {
		return d.called(func(o *spec) { o.Config.ContainerImage, o.Delivery.ID = nic.image(1), "another" }, "delete_module", nic.name,
			nic.image(0))
	},

	"orders-one-writer": func(d *doctor) []string {
		return d.orders("n0's agent", "n0", func(n *v1beta1.NodeModulesConfig) { nic.orderOf(n).Paused = true })
	},
	"no-outdated-order": func(d *doctor) []string { return d.image("n0", 3) },
	"max-unavailable": func(d *doctor) []string {
		d.modified("author", setImage(2))
		d.modified("author", setImage(0))
		d.order("n1", func(o *spec) { o.Config.ContainerImage = "another" })
		return d.image("n0", 2)
	},
	"first-alone": func(d *doctor) []string {
		d.modified("author", setImage(1))
		d.image("n1", 1)
		return d.image("n0", 1)
	},
	"failure-halts": func(d *doctor) []string {
		d.modified("author", setImage(1))
		d.image("n1", 1)
		d.orders("n1's agent", "n1", func(n *v1beta1.NodeModulesConfig) {
			n.Status.Attempts = []v1beta1.NodeModuleAttempt{{Name: nic.name, State: v1beta1.AttemptFailed}}
		})
		must(d.nodes[1].kernel.Rmmod(nic.name))
		d.known()
		return d.image("n0", 1)
	},
	"not-ready-counts": func(d *doctor) []string {
		d.modified("author", setImage(2))
		d.node("n0's kubelet", func(n *corev1.Node) { n.Status.Conditions = nil })
		d.known()
		return d.image("n1", 2)
	},
	"quarantine-spreads": func(d *doctor) []string {
		d.modified("author", setImage(1))
		d.attempt(v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed, Message: "x",
			Strike: &v1beta1.Strike{Delivery: "bad"}})
		d.known()
		return d.order("n1", func(o *spec) { o.Config.ContainerImage, o.Delivery = nic.image(1), &v1beta1.Delivery{ID: "bad"} })
	},
	"taints-keep-off": func(d *doctor) []string {
		d.node("administrator", func(n *corev1.Node) { n.Spec.Taints = taints.Sets[1] })
		must(d.nodes[0].kernel.Rmmod(nic.name))
		n := last[*v1beta1.NodeModulesConfig](&d.judge, kindOrders, "n0").DeepCopy()
		n.Status = v1beta1.NodeModulesConfigStatus{}
		delete(d.judge.past, kindOrders+"/n0")
		d.known()
		return d.wrote("module", kindOrders, "n0", n)
	},
	"paused-rollout": func(d *doctor) []string {
		d.modified("author", setImage(1))
		d.modified("author", func(m *v1beta1.Module) { m.Spec.Rollout.Paused = true })
		d.known()
		return d.image("n0", 1)
	},
	"pause-keeps-orders": func(d *doctor) []string {
		d.modified("author", func(m *v1beta1.Module) { m.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} })
		d.known()
		return d.order("n0", func(o *spec) { o.Config.Modprobe.Parameters = []string{"a=1"} })
	},
	"no-unasked-absent": func(d *doctor) []string {
		d.clock.Step(time.Hour)
		return d.absent("Deselected", orderFinalizer)
	},
	"grace": func(d *doctor) []string {
		d.trial().wanted["n0"] = d.clock.Now()
		d.node("administrator", func(n *corev1.Node) { n.Labels[testLabel] = "no" })
		return d.absent("Deselected", orderFinalizer)
	},
	"mass-deselection": func(d *doctor) []string {
		d.clock.Step(time.Hour)
		d.modified("author", func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{testLabel: "no"} })
		d.judge.known[kindModule] = 1 << 50
		return d.absent("Deselected", orderFinalizer)
	},
	"absent-says-why": func(d *doctor) []string {
		d.modified("author", noLoader)
		return d.absent("", orderFinalizer)
	},
	"orders-leave-answered": func(d *doctor) []string { return d.orders("module", "n0", noOrder) },
	"absent-is-held": func(d *doctor) []string {
		d.modified("author", noLoader)
		return d.absent("LoaderRemoved")
	},
	"orders-have-nodes": func(d *doctor) []string {
		n := last[*v1beta1.NodeModulesConfig](&d.judge, kindOrders, "n0").DeepCopy()
		n.OwnerReferences[0].UID = "another"
		n.Status = v1beta1.NodeModulesConfigStatus{}
		delete(d.judge.past, kindOrders+"/n0")
		return d.wrote("module", kindOrders, "n0", n)
	},
	"module-is-held": func(d *doctor) []string {
		d.modified("author", func(m *v1beta1.Module) { m.Finalizers = nil })
		n := last[*v1beta1.NodeModulesConfig](&d.judge, kindOrders, "n0").DeepCopy()
		n.Status = v1beta1.NodeModulesConfigStatus{}
		delete(d.judge.past, kindOrders+"/n0")
		d.known()
		return d.wrote("module", kindOrders, "n0", n)
	},
	"orders-complete": func(d *doctor) []string { return d.order("n0", func(o *spec) { o.Config.KernelVersion = "5.0" }) },
	"carriers-asked":  func(d *doctor) []string { return d.carrier(nic.image(3), "n0", "") },
	"carriers-needed": func(d *doctor) []string {
		d.known()
		return d.carrier(nic.image(0), "n0", last[*v1beta1.NodeModulesConfig](&d.judge, kindOrders, "n0").Status.Artifacts[0].ID)
	},
	"carriers-have-nodes": func(d *doctor) []string { return d.carrier(nic.image(0), "n9", "") },

	"departs-whole": func(d *doctor) []string {
		d.modified("author", deleting)
		return d.gone()
	},
	"departs-late": func(d *doctor) []string {
		d.modified("author", deleting)
		d.clock.SetTime(epoch)
		for _, node := range []string{"n1", "n2"} {
			d.orders("module", node, noOrder)
		}
		d.absent("Deleted", orderFinalizer)
		d.known()
		return d.gone()
	},
	"paused-stays": func(d *doctor) []string {
		d.modified("author", func(m *v1beta1.Module) {
			deleting(m)
			m.Annotations = map[string]string{v1beta1.PausedAnnotation: ""}
		})
		for _, m := range d.nodes[1:] {
			d.orders("module", m.name, noOrder)
		}
		d.absent("Deleted", orderFinalizer)
		d.clock.Step(time.Hour)
		d.judge.known[kindModule] = 1 << 40
		return d.gone()
	},

	"live-is-so": func(d *doctor) []string {
		return d.orders("n0's agent", "n0", func(n *v1beta1.NodeModulesConfig) { nic.liveIn(n).BootID = "another" })
	},
	"absent-is-so": func(d *doctor) []string { return d.attempt(v1beta1.NodeModuleAttempt{State: v1beta1.AttemptAbsent}) },
	"open-orders-told": func(d *doctor) []string {
		must(d.nodes[0].kernel.Rmmod(nic.name))
		return d.orders("n0's agent", "n0", notLive)
	},
	"attempts-name-causes": func(d *doctor) []string {
		return d.attempt(v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed})
	},
	"attempt-reasons": func(d *doctor) []string {
		return d.attempt(v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: "Nonsense", Message: "x"})
	},
	"attempt-times": func(d *doctor) []string {
		a := v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed, Message: "x",
			LastTransitionTime: metav1.NewTime(epoch)}
		d.attempt(a)
		a.LastTransitionTime = metav1.NewTime(epoch.Add(time.Hour))
		return d.attempt(a)
	},
	"artifacts-are-held": func(d *doctor) []string {
		return d.orders("n0's agent", "n0", func(n *v1beta1.NodeModulesConfig) { n.Status.Artifacts[0].Digest = "another" })
	},
	"labels-one-writer": func(d *doctor) []string {
		return d.node("n0's kubelet", func(n *corev1.Node) { n.Labels[v1beta1.DRAReadyLabel(namespace, nic.name)] = "" })
	},
	"ready-label-earned": func(d *doctor) []string {
		d.node("node", func(n *corev1.Node) { delete(n.Labels, v1beta1.ReadyLabel(namespace, nic.name)) })
		d.orders("n0's agent", "n0", notLive)
		d.known()
		return d.node("node", func(n *corev1.Node) { n.Labels[v1beta1.ReadyLabel(namespace, nic.name)] = "" })
	},
	"status-one-writer": func(d *doctor) []string {
		return d.modified("module", func(m *v1beta1.Module) { m.Status.ModuleLoader.AvailableNumber = 1 })
	},
	"observed-not-ahead": func(d *doctor) []string {
		return d.status(func(s *v1beta1.ModuleStatus) { s.ObservedGeneration += 9 })
	},
	"condition-reasons": func(d *doctor) []string {
		return d.status(func(s *v1beta1.ModuleStatus) { set(s, "Ready", metav1.ConditionTrue, "Nonsense", "x") })
	},
	"conditions-name-causes": func(d *doctor) []string {
		return d.status(func(s *v1beta1.ModuleStatus) { set(s, "Ready", metav1.ConditionFalse, "Loading", "") })
	},
	"condition-times": func(d *doctor) []string {
		return d.status(func(s *v1beta1.ModuleStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(epoch.Add(time.Hour))
		})
	},
	"ready-is-all": func(d *doctor) []string {
		return d.status(func(s *v1beta1.ModuleStatus) { set(s, "Loaded", metav1.ConditionFalse, "Loading", "x") })
	},
	"stalled-is-final": func(d *doctor) []string {
		return d.status(func(s *v1beta1.ModuleStatus) {
			set(s, "Ready", metav1.ConditionFalse, "Loading", "x")
			set(s, "Stalled", metav1.ConditionTrue, v1beta1.ReasonNoKernelMapping, "x")
		})
	},
	"counts-earned": func(d *doctor) []string {
		return d.status(func(s *v1beta1.ModuleStatus) { s.ModuleLoader.AvailableNumber = 4 })
	},
	"loaded-earned": func(d *doctor) []string {
		d.status(func(s *v1beta1.ModuleStatus) {
			s.ModuleLoader.AvailableNumber = 2
			set(s, "Ready", metav1.ConditionFalse, "Loading", "x")
			set(s, "Loaded", metav1.ConditionFalse, "Loading", "x")
		})
		d.orders("n0's agent", "n0", notLive)
		d.known()
		return d.status(func(s *v1beta1.ModuleStatus) { set(s, "Loaded", metav1.ConditionTrue, "Loaded", "x") })
	},

	"calls-apart": func(d *doctor) []string { return d.called(same, "delete_module", aux.name, aux.image(0)) },
	"entries-apart": func(d *doctor) []string {
		d.request = aux.key()
		return d.order("n0", func(o *spec) { o.SkipChecks = true })
	},
	"entries-owned": func(d *doctor) []string {
		return d.orders("module", "n0", func(n *v1beta1.NodeModulesConfig) {
			nic.orderOf(n).Config.ImagePullPolicy = corev1.PullAlways
			n.ManagedFields = nil
		})
	},
	"absent-stays-held": func(d *doctor) []string {
		d.modified("author", noLoader)
		d.absent("LoaderRemoved", orderFinalizer)
		return d.orders("module", "n0", func(n *v1beta1.NodeModulesConfig) { n.Finalizers = nil })
	},

	"policy-denies": func(d *doctor) []string {
		d.modified("author", setImage(2))
		d.wrote("administrator", kindPolicy, "p0", &v1alpha1.ModulePolicy{Spec: v1alpha1.ModulePolicySpec{Mode: v1alpha1.PolicyEnforce,
			Images: []string{"registry.example/nic:0", "registry.example/aux*"}}})
		d.known()
		return d.image("n0", 2)
	},

	"deleted-goes": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			deleting(s.module)
			for i := range s.nodes {
				s.nodes[i].tell("")
			}
		})
	},
	"orders-current": func(d *doctor) []string {
		return d.rest(func(s *stillness) { s.nodes[0].order.Config.ContainerImage = nic.image(1) })
	},
	"nothing-to-lose": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			s.lost()
			s.nodes[0].live, s.nodes[0].order.Config.ContainerImage = "", nic.image(1)
		})
	},
	"kernels-follow": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			s.lost()
			s.nodes[0].live = nic.image(1)
		})
	},
	"ready-label": func(d *doctor) []string {
		return d.rest(func(s *stillness) { delete(s.nodes[0].node.Labels, v1beta1.ReadyLabel(namespace, nic.name)) })
	},
	"counts": func(d *doctor) []string {
		return d.rest(func(s *stillness) { s.module.Status.ModuleLoader.DesiredNumber = 7 })
	},
	"conditions": func(d *doctor) []string {
		return d.rest(func(s *stillness) { set(&s.module.Status, "KernelsCovered", metav1.ConditionFalse, "x", "x") })
	},
	"observed-current": func(d *doctor) []string { return d.rest(func(s *stillness) { s.module.Status.ObservedGeneration-- }) },
	"taints-unload": func(d *doctor) []string {
		return d.rest(func(s *stillness) { s.judge.tainted = s.nodes[:1] })
	},
	"in-tree-comes-back": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			n := &s.nodes[0]
			n.order, n.live, n.config, n.selected = nil, "", nil, false
			n.node.Labels = nil
			n.tell("")
			s.module.Status.ModuleLoader = v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 2, DesiredNumber: 2, AvailableNumber: 2}
			d.judge.kernelOf("n0").Out["stock"] = true
		})
	},
	"not-in-vain":      func(d *doctor) []string { return d.rest(func(*stillness) { d.judge.kernelOf("n0").Left["stock"] = 3 }) },
	"no-carriers-left": func(d *doctor) []string { return d.rest(func(*stillness) { d.carrier(nic.image(0), "n0", "") }) },
	"nothing-left": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			s.module = nil
			for i := range s.nodes {
				n := &s.nodes[i]
				n.order, n.live, n.config, n.selected = nil, "", nil, false
				n.tell("")
				n.node.Labels = map[string]string{v1beta1.DRAReadyLabel(namespace, nic.name): ""}
			}
		})
	},
	"orders-labelled": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			s.nodes[0].config = s.nodes[0].config.DeepCopy()
			delete(s.nodes[0].config.Labels, v1beta1.InUseLabel(namespace, nic.name))
		})
	},
	"version-label": func(d *doctor) []string {
		return d.rest(func(s *stillness) { s.nodes[0].node.Labels[v1beta1.VersionReadyLabel(namespace, nic.name)] = "1" })
	},
	"node-condition": func(d *doctor) []string {
		return d.rest(func(s *stillness) { s.nodes[0].tell(corev1.ConditionFalse) })
	},
	"parameters-told": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			s.module.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"a=1"}
			for i := range s.nodes {
				n := &s.nodes[i]
				n.order.Config.Modprobe.Parameters = []string{"a=1"}
				n.config = n.config.DeepCopy()
				if i > 0 {
					n.config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: namespace, Name: nic.name,
						Reason: v1beta1.ReasonParametersDiffer}}
				}
			}
		})
	},
	"attempts-end": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			n := &s.nodes[0]
			n.config = n.config.DeepCopy()
			n.config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: namespace, Name: nic.name, Reason: v1beta1.ReasonPaused}}
		})
	},
	"problems-end": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			s.module.Status.Problems = []v1beta1.ModuleProblem{{Part: v1beta1.ProblemDeliveries, Node: "n0", Reason: v1beta1.ReasonDeliveryRefused}}
		})
	},
	"no-orders-without-nodes": func(d *doctor) []string {
		return d.rest(func(s *stillness) {
			s.nodes = s.nodes[:2]
			s.module.Status.ModuleLoader = v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 2, DesiredNumber: 2, AvailableNumber: 2}
		})
	},
	"quiet": func(d *doctor) []string { return d.rest(func(s *stillness) { s.written = []string{"x"} }) },
	"idle":  func(d *doctor) []string { return d.rest(func(s *stillness) { s.passes = 99 }) },
}
