// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/sim/history"
)

const setKey = namespace + "/nic-device-plugin"

// plugged gives the Module a device plugin, which becomes ready on all nodes.
func (d *doctor) plugged() *doctor {
	d.Do(history.Event{Verb: "Plugin", B: 1})
	d.rest10()
	return d
}

func (d *doctor) rest10() { d.World.rest(10 * time.Minute) }

// pod shows a write of n0's plugin pod; nil: its end.
func (d *doctor) pod(actor string, change func(*corev1.Pod)) []string {
	key := namespace + "/" + d.plugin().Name
	if change == nil {
		return d.wrote(actor, kindPod, key, nil)
	}
	pod := d.plugin().DeepCopy()
	change(pod)
	return d.wrote(actor, kindPod, key, pod)
}

// plugin is n0's plugin pod.
func (d *doctor) plugin() *corev1.Pod { return d.trial().still().plugins("n0")[0] }

func (d *doctor) set(actor string, change func(*appsv1.DaemonSet)) []string {
	ds := last[*appsv1.DaemonSet](&d.judge, kindSet, setKey).DeepCopy()
	change(ds)
	return d.wrote(actor, kindSet, setKey, ds)
}

func unready(pod *corev1.Pod) {
	for i := range pod.Status.Conditions {
		pod.Status.Conditions[i].Status = corev1.ConditionFalse
	}
}

// unplugged makes all that is told say that n0 has no ready plugin.
func (s *stillness) unplugged() {
	delete(s.nodes[0].node.Labels, v1beta1.DevicePluginReadyLabel(namespace, nic.name))
	s.module.Status.DevicePlugin.AvailableNumber--
	set(&s.module.Status, "Ready", metav1.ConditionFalse, v1beta1.ReasonDevicesPending, "x")
	set(&s.module.Status, "DevicesReady", metav1.ConditionFalse, v1beta1.ReasonDevicesPending, "x")
}

// pluginBreaks breaks each promise about device plugins.
var pluginBreaks = map[string]func(*doctor) []string{
	"evicts-once": func(d *doctor) []string {
		d.nodes[0].pods.Use(d.ctx, namespace, nic.name, true)
		d.judge.writes()
		key := namespace + "/user-n0"
		pod := last[*corev1.Pod](&d.judge, kindPod, key).DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: d.Now()}
		named := v1beta1.NodeModuleAttempt{State: v1beta1.AttemptInUse, Reason: v1beta1.ReasonInUse, Message: "x",
			HolderUIDs: []string{string(pod.UID)}}
		d.attempt(named)
		if broken := d.wrote("module", kindPod, key, pod); len(broken) > 0 {
			return broken
		}
		another := pod.DeepCopy()
		another.UID, another.DeletionTimestamp = "another", nil
		d.wrote("n0's kubelet", kindPod, key, another)
		return d.wrote("module", kindPod, key, nil)
	},
	"plugin-as-asked": func(d *doctor) []string {
		return d.plugged().set("plugin", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{testLabel: "yes"} })
	},
	"plugin-waits": func(d *doctor) []string {
		d.plugged().nodes[0].pods.Booted()
		d.nodes[0].kernel.Reboot("")
		return d.pod("n0's kubelet", func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(d.Now())
		})
	},
	"plugin-leaves-first": func(d *doctor) []string {
		return d.plugged().called(func(o *spec) { o.State = v1beta1.NodeModuleAbsent }, "delete_module", nic.name, nic.image(0))
	},
	"plugin-apart": func(d *doctor) []string {
		return d.order("n0", func(o *spec) { o.Delivery.ID = "another" })
	},
	"plugin-paused": func(d *doctor) []string {
		d.plugged().modified("author", func(m *v1beta1.Module) {
			m.Annotations = map[string]string{v1beta1.PausedAnnotation: ""}
			m.Spec.DevicePlugin = nic.plugin(1, 1)
		})
		d.known()
		return d.set("plugin", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = nic.pluginImage(1) })
	},
	"plugin-restarts": func(d *doctor) []string {
		d.plugged().known()
		return d.pod("plugin-restart", nil)
	},
	"plugin-label-earned": func(d *doctor) []string {
		d.plugged().node("node", func(n *corev1.Node) { delete(n.Labels, v1beta1.DevicePluginReadyLabel(namespace, nic.name)) })
		d.pod("n0's kubelet", unready)
		d.known()
		return d.node("node", func(n *corev1.Node) { n.Labels[v1beta1.DevicePluginReadyLabel(namespace, nic.name)] = "" })
	},
	"plugin-counts-earned": func(d *doctor) []string {
		return d.plugged().status(func(s *v1beta1.ModuleStatus) { s.DevicePlugin.AvailableNumber = 4 })
	},
	"devices-ready-earned": func(d *doctor) []string {
		d.plugged().status(func(s *v1beta1.ModuleStatus) {
			s.DevicePlugin.AvailableNumber = 2
			set(s, "Ready", metav1.ConditionFalse, v1beta1.ReasonDevicesPending, "x")
			set(s, "DevicesReady", metav1.ConditionFalse, v1beta1.ReasonDevicesPending, "x")
		})
		d.pod("n0's kubelet", unready)
		d.known()
		return d.status(func(s *v1beta1.ModuleStatus) { set(s, "DevicesReady", metav1.ConditionTrue, "DevicesReady", "x") })
	},

	"plugin-pods": func(d *doctor) []string {
		d.plugged()
		return d.rest(func(s *stillness) {
			d.pod("n0's kubelet", unready)
			s.unplugged()
		})
	},
	"plugin-on-live": func(d *doctor) []string {
		d.plugged()
		return d.rest(func(*stillness) {
			d.pod("n0's kubelet", func(pod *corev1.Pod) {
				pod.Status.InitContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(epoch.Add(-time.Minute))
			})
		})
	},
	"plugin-label": func(d *doctor) []string {
		return d.plugged().rest(func(s *stillness) {
			delete(s.nodes[0].node.Labels, v1beta1.DevicePluginReadyLabel(namespace, nic.name))
		})
	},
	"plugin-counts": func(d *doctor) []string {
		return d.plugged().rest(func(s *stillness) { s.module.Status.DevicePlugin.DesiredNumber = 7 })
	},
	"devices-ready": func(d *doctor) []string {
		return d.plugged().rest(func(s *stillness) {
			meta.FindStatusCondition(s.module.Status.Conditions, "DevicesReady").Status = metav1.ConditionFalse
		})
	},
	"no-plugin-left": func(d *doctor) []string {
		d.plugged()
		return d.rest(func(s *stillness) {
			s.module.Spec.DevicePlugin, s.module.Status.DevicePlugin = nil, v1beta1.DaemonSetStatus{}
			for i := range s.nodes {
				for _, pod := range s.plugins(s.nodes[i].m.name) {
					d.wrote("x", kindPod, namespace+"/"+pod.Name, nil)
				}
				delete(s.nodes[i].node.Labels, v1beta1.DevicePluginReadyLabel(namespace, nic.name))
			}
		})
	},
}
