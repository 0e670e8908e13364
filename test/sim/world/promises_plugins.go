// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/sim/kubelet"
)

const (
	sourceDevices = "docs/guide/devices.md"
	sourceReady   = "docs/guide/ready.md"
	sourceUsable  = "docs/design/0014-ready-means-usable.md"
	sourceDrivers = "docs/design/0011-dra.md"
)

// pluginPromises are about device plugins: their DaemonSets, pods, labels, counts and conditions.
var pluginPromises = []Promise{
	{Name: "plugin-as-asked", Text: "A device plugin is what the Module asks for, on the nodes with the ready label; without a " +
		"moduleLoader on those that the selector chooses.",
		Source: sourceAPI + ", devicePlugin, moduleLoader; " + sourceDevices, of: kindSet, write: pluginAsAsked},
	{Name: "plugin-waits", Text: "A device plugin starts when the kernel module is live.",
		Source: sourceDevices + "; " + sourceUsable + ", 3", of: kindPod, write: pluginWaits},
	{Name: "plugin-leaves-first", Text: "The kernel module is not unloaded while a device plugin has it open.",
		Source: sourceDevices + "; " + sourceDrivers + ", Interaction", call: pluginLeavesFirst},
	{Name: "plugin-apart", Text: "Changing the device plugin gives no node another delivery.",
		Source: sourceDevices + "; " + sourceOrders + ", 2", of: kindOrders, write: ordered(pluginApart)},
	{Name: "plugin-paused", Text: "While a Module is paused and not deleted, its device plugin is left as it is.",
		Source: sourceUpgrade + ", Pause and retry", of: kindSet, write: pluginPaused},
	{Name: "plugin-restarts", Text: "Drover ends a plugin's pod where its wait had ended before the load began, and no other.",
		Source: sourceReady + "; docs/guide/draining.md", of: kindPod, write: pluginRestarts},
	{Name: "plugin-label-earned", Text: "A node gets the label device-plugin-ready when a pod of the plugin is ready there.",
		Source: sourceLabels, of: kindNode, write: pluginLabelEarned},
	{Name: "plugin-counts-earned", Text: "No more nodes count as having the plugin than have a ready pod of it.",
		Source: sourceAPI + ", status.devicePlugin", of: kindModule, write: told(pluginCountsEarned)},
	{Name: "devices-ready-earned", Text: "DevicesReady becomes True when the plugin is ready on every node with the kernel module.",
		Source: sourceLabels + ", Conditions", of: kindModule, write: told(devicesEarned)},

	{Name: "plugin-pods", Text: "A device plugin's pods are where they are wanted: one on each node, ready, of the Module's image.",
		Source: sourceDevices + "; " + sourceAPI + ", devicePlugin", rest: pluginPods},
	{Name: "plugin-on-live", Text: "After a load, the plugin's pod has begun with what is live.",
		Source: sourceReady + "; " + sourceRollout + ", 9", rest: each(pluginOnLive)},
	{Name: "plugin-label", Text: "The label device-plugin-ready is where a pod of the plugin is ready, and nowhere else.",
		Source: sourceLabels, rest: each(pluginLabelIsSo)},
	{Name: "plugin-counts", Text: "The status counts the nodes of the device plugin.", Source: sourceAPI + ", DaemonSetStatus",
		rest: pluginCountsAreSo},
	{Name: "devices-ready", Text: "DevicesReady is True where the plugin is ready on every node with the kernel module, or not asked for.",
		Source: sourceLabels + ", Conditions; " + sourceReasons, rest: devicesAreSo},
	{Name: "no-plugin-left", Text: "Without a Module that asks for a plugin, there is no DaemonSet, ServiceAccount or pod of one.",
		Source: sourceDrivers + ", No owner reference", rest: noPluginLeft},
}

// podIsReady says whether a pod is ready and stays.
func podIsReady(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// isPlugin says whether a pod is of the Module's device plugin.
func (s subject) isPlugin(pod *corev1.Pod) bool {
	return pod != nil && kubelet.IsPlugin(pod) && pod.Labels[v1beta1.ModuleNameLabel] == s.name
}

// mayServe says whether the operator may know of a ready pod of the plugin on a node.
func (j *trial) mayServe(node string) bool {
	for _, at := range slices.Sorted(maps.Keys(j.past)) {
		key, ok := strings.CutPrefix(at, kindPod+"/")
		if ok && slices.ContainsFunc(seen[*corev1.Pod](j.judge, kindPod, key), func(pod *corev1.Pod) bool {
			return j.isPlugin(pod) && pod.Spec.NodeName == node && podIsReady(pod)
		}) {
			return true
		}
	}
	return false
}

// runs is what a pod's main container says of its run; nil: it does not run.
func runs(pod *corev1.Pod) *corev1.ContainerStateRunning {
	if pod == nil || len(pod.Status.ContainerStatuses) == 0 {
		return nil
	}
	return pod.Status.ContainerStatuses[0].State.Running
}

// saysPod is a pod of a plugin in words.
func saysPod(pod *corev1.Pod) string {
	if pod == nil {
		return "gone"
	}
	return fmt.Sprintf("on %s: %s runs=%t ready=%t going=%t", pod.Spec.NodeName, pod.Spec.Containers[0].Image, runs(pod) != nil,
		podIsReady(pod), pod.DeletionTimestamp != nil)
}

// asks says whether a DaemonSet is what a version of the Module asks for.
func (s subject) asks(m *v1beta1.Module, ds *appsv1.DaemonSet) bool {
	if m == nil || m.DeletionTimestamp != nil || m.Spec.DevicePlugin == nil {
		return false
	}
	where := m.Spec.Selector
	if m.Spec.ModuleLoader != nil {
		where = map[string]string{v1beta1.ReadyLabel(namespace, s.name): ""}
	}
	p, pods := m.Spec.DevicePlugin, &ds.Spec.Template.Spec
	c := &pods.Containers[0]
	return c.Image == p.Container.Image && reflect.DeepEqual(c.Env, p.Container.Env) && maps.Equal(where, pods.NodeSelector) &&
		!slices.ContainsFunc(p.Volumes, func(v corev1.Volume) bool {
			return !slices.ContainsFunc(pods.Volumes, func(has corev1.Volume) bool { return has.Name == v.Name })
		})
}

func pluginAsAsked(j *trial, r *write) string {
	now, before, _ := both[*appsv1.DaemonSet](r)
	if now == nil || r.actor != "plugin" || before != nil && reflect.DeepEqual(now.Spec, before.Spec) {
		return ""
	}
	if slices.ContainsFunc(j.modules(), func(m *v1beta1.Module) bool { return j.asks(m, now) }) {
		return ""
	}
	spec := &now.Spec.Template.Spec
	return fmt.Sprintf("the DaemonSet %s runs %s %v on %v, for which the Module does not ask", now.Name, spec.Containers[0].Image,
		spec.Containers[0].Env, spec.NodeSelector)
}

func pluginWaits(j *trial, r *write) string {
	now, before, _ := both[*corev1.Pod](r)
	if !j.isPlugin(now) || runs(now) == nil || now.Status.ContainerStatuses[0].RestartCount > 0 ||
		runs(before) != nil && runs(before).StartedAt.Equal(&runs(now).StartedAt) || crashed(before) {
		return ""
	}
	m := j.w.machineOf(now.Spec.NodeName)
	if _, loaded := now.Spec.NodeSelector[v1beta1.ReadyLabel(namespace, j.name)]; loaded && j.live(m) == "" {
		return fmt.Sprintf("%s runs on %s, which does not have the kernel module", now.Name, m.name)
	}
	return ""
}

// crashed says whether a pod has waited for the kernel module, and ended since: it waits but once.
func crashed(pod *corev1.Pod) bool {
	return pod != nil && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
		pod.Status.ContainerStatuses[0].State.Waiting.Reason == "CrashLoopBackOff"
}

func pluginLeavesFirst(c *call) string {
	if open := c.m.pods.Open(c.Module); c.Call.Call == "delete_module" && c.Result == "" && len(open) > 0 {
		return fmt.Sprintf("%s unloaded %s, which %v had open", c.m.name, c.Module, open)
	}
	return ""
}

func pluginApart(_ *trial, o order) string {
	if !loads(o.was) || !loads(o.now) || !reflect.DeepEqual(o.was.Config, o.now.Config) || o.was.Delivery == nil || o.now.Delivery == nil ||
		o.was.Delivery.ID == o.now.Delivery.ID {
		return ""
	}
	return fmt.Sprintf("%s gets another delivery of what it was ordered: %s", o.m.name, say(o.now))
}

// pluginPaused leaves out a Module that is deleted: 0011 has its plugin go first, and does not
// speak of pauses.
func pluginPaused(j *trial, r *write) string {
	now, before, _ := both[*appsv1.DaemonSet](r)
	if r.actor != "plugin" || now != nil && before != nil && reflect.DeepEqual(now.Spec, before.Spec) ||
		!every(j.modules(), func(m *v1beta1.Module) bool { return paused(m) && m.DeletionTimestamp == nil }) {
		return ""
	}
	return fmt.Sprintf("the Module is paused, and the DaemonSet %s is written or deleted", r.key)
}

// pluginRestarts looks at pods that the operator deletes.
func pluginRestarts(j *trial, r *write) string {
	now, before, _ := both[*corev1.Pod](r)
	if !j.isPlugin(before) || now != nil && now.DeletionTimestamp == nil || before.DeletionTimestamp != nil ||
		!slices.Contains(j.w.op.Controllers(), r.actor) {
		return ""
	}
	for _, n := range seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, before.Spec.NodeName) {
		live := j.liveIn(n)
		if live == nil || live.Observed == nil || live.Observed.LoadBegan == nil {
			continue
		}
		for i := range before.Status.InitContainerStatuses {
			if t := before.Status.InitContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.Before(live.Observed.LoadBegan) {
				return ""
			}
		}
	}
	return fmt.Sprintf("%s ended %s, which had waited for what is live", r.actor, before.Name)
}

func pluginLabelEarned(j *trial, r *write) string {
	now, before, _ := both[*corev1.Node](r)
	if now == nil || r.actor != "node" {
		return ""
	}
	_, has := now.Labels[v1beta1.DevicePluginReadyLabel(namespace, j.name)]
	had := false
	if before != nil {
		_, had = before.Labels[v1beta1.DevicePluginReadyLabel(namespace, j.name)]
	}
	if has && !had && !j.mayServe(r.key) {
		return fmt.Sprintf("%s gets the label of a ready plugin, and no pod of it is ready there", r.key)
	}
	return ""
}

func pluginCountsEarned(j *trial, now, before *v1beta1.Module) string {
	if now.Status.DevicePlugin == before.Status.DevicePlugin {
		return ""
	}
	most := 0
	for _, m := range j.w.nodes {
		if j.mayServe(m.name) {
			most++
		}
	}
	if n := int(now.Status.DevicePlugin.AvailableNumber); n > most {
		return fmt.Sprintf("devicePlugin.availableNumber is %d, and at most %d nodes may have been known to have a ready pod", n, most)
	}
	return ""
}

func devicesEarned(j *trial, now, before *v1beta1.Module) string {
	if !isTrue(now, "DevicesReady") || isTrue(before, "DevicesReady") && now.Status.ObservedGeneration == before.Status.ObservedGeneration ||
		!every(j.modules(), func(m *v1beta1.Module) bool { return m != nil && m.Spec.DevicePlugin != nil }) {
		return ""
	}
	for _, m := range j.w.nodes {
		hosts := every(j.modules(), func(module *v1beta1.Module) bool {
			return every(seen[*corev1.Node](j.judge, kindNode, m.name), func(n *corev1.Node) bool { return matches(module, n) })
		}) && every(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name), func(n *v1beta1.NodeModulesConfig) bool {
			return j.serves(m.name)(n) && j.attemptOf(n) == nil
		})
		if hosts && !j.mayServe(m.name) {
			return fmt.Sprintf("DevicesReady is True, and no pod of the plugin is known to be ready on %s", m.name)
		}
	}
	return ""
}

// plugins are the pods of the Module's plugin on a node.
func (s *stillness) plugins(node string) (all []*corev1.Pod) {
	for _, pod := range there[*corev1.Pod](s.judge.judge, kindPod) {
		if s.judge.isPlugin(pod) && pod.Spec.NodeName == node {
			all = append(all, pod)
		}
	}
	return all
}

// asksForPlugin says whether there is a Module that asks for a plugin.
func (s *stillness) asksForPlugin() bool { return s.module != nil && s.module.Spec.DevicePlugin != nil }

// wantsPlugin says whether the plugin belongs on a node.
func (s *stillness) wantsPlugin(n stillNode) bool {
	if !s.asksForPlugin() {
		return false
	}
	if s.module.Spec.ModuleLoader != nil {
		_, has := n.node.Labels[v1beta1.ReadyLabel(namespace, s.judge.name)]
		return has
	}
	return chooses(s.module, n.node)
}

// chooses says whether the Module's selector fits a node, whatever it loads.
func chooses(m *v1beta1.Module, n *corev1.Node) bool {
	for k, v := range m.Spec.Selector {
		if n.Labels[k] != v {
			return false
		}
	}
	return true
}

func (s *stillness) hasPlugin(n stillNode) bool {
	return slices.ContainsFunc(s.plugins(n.m.name), podIsReady)
}

func pluginPods(s *stillness) string {
	for _, n := range s.nodes {
		pods := s.plugins(n.m.name)
		switch wants := s.wantsPlugin(n); {
		case len(pods) > 1 || len(pods) == 1 && !wants:
			return fmt.Sprintf("%s has %d pods of the plugin, the first %s; it is wanted there: %t; %s", n.m.name, len(pods),
				saysPod(pods[0]), wants, s.say(n))
		case len(pods) == 0 && wants:
			return n.m.name + " has no pod of the plugin; " + s.say(n)
		case wants && (!podIsReady(pods[0]) || pods[0].Spec.Containers[0].Image != s.module.Spec.DevicePlugin.Container.Image):
			return fmt.Sprintf("the plugin's pod %s; the Module wants %s", saysPod(pods[0]), s.module.Spec.DevicePlugin.Container.Image)
		}
	}
	return ""
}

// pluginOnLive leaves out what a person loaded.
func pluginOnLive(s *stillness, n stillNode) string {
	live := s.judge.liveIn(n.config)
	if n.live == "" || !s.judge.loadedByAgent(n.m) || live == nil || live.Observed == nil || live.Observed.LoadBegan == nil || n.m.stepped {
		return "" // the node's clock tells what came first
	}
	for _, pod := range s.plugins(n.m.name) {
		if _, waits := pod.Spec.NodeSelector[v1beta1.ReadyLabel(namespace, s.judge.name)]; !waits {
			continue
		}
		waited := slices.ContainsFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Terminated != nil && !c.State.Terminated.FinishedAt.Before(live.Observed.LoadBegan)
		})
		if !waited {
			return fmt.Sprintf("%s had not waited for the kernel module that was loaded at %s", pod.Name, live.Observed.LoadBegan)
		}
	}
	return ""
}

func pluginLabelIsSo(s *stillness, n stillNode) string {
	if _, has := n.node.Labels[v1beta1.DevicePluginReadyLabel(namespace, s.judge.name)]; has != s.hasPlugin(n) {
		return fmt.Sprintf("the label of a ready plugin is there: %t", has)
	}
	return ""
}

// pluginCountsAreSo leaves out nodes that should have it where a mapping is missing: no document
// says whether they do.
func pluginCountsAreSo(s *stillness) string {
	if s.module == nil {
		return ""
	}
	want, got := v1beta1.DaemonSetStatus{}, s.module.Status.DevicePlugin
	for _, n := range s.nodes {
		if s.asksForPlugin() {
			want.NodesMatchingSelectorNumber += number(chooses(s.module, n.node))
			want.DesiredNumber += number(chooses(s.module, n.node))
			want.AvailableNumber += number(s.hasPlugin(n))
		}
		if s.asksForPlugin() && s.module.Spec.ModuleLoader != nil && matches(s.module, n.node) && !n.selected {
			want.DesiredNumber, got.DesiredNumber = 0, 0
		}
	}
	if got != want {
		return fmt.Sprintf("the status counts %+v, and so it is: %+v", got, want)
	}
	return ""
}

// devicesAreSo leaves out a Module without a node that has the kernel module.
func devicesAreSo(s *stillness) string {
	if s.module == nil {
		return ""
	}
	hosts, want := 0, true
	for _, n := range s.nodes {
		if s.wantsPlugin(n) {
			hosts++
			want = want && s.hasPlugin(n)
		}
	}
	if s.asksForPlugin() && hosts == 0 || isTrue(s.module, "DevicesReady") == want {
		return ""
	}
	c := meta.FindStatusCondition(s.module.Status.Conditions, "DevicesReady")
	return fmt.Sprintf("DevicesReady is %+v, and should be True: %t", c, want)
}

// accounts are ServiceAccounts.
var accounts = schema.GroupResource{Resource: "serviceaccounts"}

func noPluginLeft(s *stillness) string {
	if s.asksForPlugin() {
		return ""
	}
	for _, n := range s.nodes {
		if pods := s.plugins(n.m.name); len(pods) > 0 {
			return pods[0].Name + " is still there, " + saysPod(pods[0])
		}
	}
	for _, ds := range there[*appsv1.DaemonSet](s.judge.judge, kindSet) {
		if ds.Labels[v1beta1.ModuleNameLabel] == s.judge.name {
			return "the DaemonSet " + ds.Name + " is still there"
		}
	}
	for _, a := range s.judge.w.server.cluster.Metadata(accounts) {
		if a.Labels[v1beta1.ModuleNameLabel] == s.judge.name {
			return "the ServiceAccount " + a.Name + " is still there"
		}
	}
	return ""
}
