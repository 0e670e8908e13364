// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kubelet"
	"github.com/drover-project/drover/test/sim/policies"
	"github.com/drover-project/drover/test/sim/taints"
)

// grace is how long a node keeps what it has when it is no longer selected, where the Module does
// not say.
const grace = 5 * time.Minute

// order is a new version of a node's order by the operator.
type order struct {
	m        *machine
	now, was *v1beta1.NodeModuleSpec
	config   *v1beta1.NodeModulesConfig
}

// ordered has a promise look at each new version of an order that the operator writes.
func ordered(check func(*trial, order) string) func(*trial, *write) string {
	return func(j *trial, r *write) string {
		now, before, _ := both[*v1beta1.NodeModulesConfig](r)
		m := j.w.machineOf(r.key)
		o := order{m, j.orderOf(now), j.orderOf(before), now}
		if r.actor != "module" || m == nil || now == nil || reflect.DeepEqual(o.now, o.was) {
			return ""
		}
		return check(j, o)
	}
}

// turns says whether the order has what is live make room, and did not before.
func (s subject) turns(o order) bool {
	return s.changes(o.m, o.now) && (say(o.was) != say(o.now)) && !s.sameChange(o.m, o.was, o.now)
}

// sameChange says whether the node was ordered the same before, not paused.
func (s subject) sameChange(m *machine, was, now *v1beta1.NodeModuleSpec) bool {
	return s.changes(m, was) && was.Config.ContainerImage == now.Config.ContainerImage
}

// changes says whether what is live has to make room for what is ordered, now.
func (s subject) changes(m *machine, o *v1beta1.NodeModuleSpec) bool {
	live := s.live(m)
	return loads(o) && live != "" && s.loadedByAgent(m) && !o.Paused && o.UnloadPolicy != v1beta1.UnloadOnReboot &&
		live != o.Config.ContainerImage
}

// stays says whether the agent says, or the order, that what is live stays although another build
// is ordered.
func (j *trial) stays(n *v1beta1.NodeModulesConfig) bool {
	o, a := j.orderOf(n), j.attemptOf(n)
	return o.Paused || o.UnloadPolicy == v1beta1.UnloadOnReboot ||
		a != nil && (a.State == v1beta1.AttemptFailed || a.Reason == v1beta1.ReasonRebootRequired)
}

func noOutdatedOrder(j *trial, o order) string {
	image, had := imageOf(o.now), imageOf(o.was)
	if image == "" || image == had && o.was.Paused == o.now.Paused || o.now.Paused || j.kernelOf(o.m.name).WorkedEver(image) {
		return ""
	}
	if j.isNamed(image) || image == j.live(o.m) || j.live(o.m) == "" && j.servedElsewhere(image) {
		return ""
	}
	return fmt.Sprintf("%s is ordered %s, which worked nowhere, and the Module does not name it", o.m.name, say(o.now))
}

// isNamed says whether a Module that the operator may know names an image.
func (j *trial) isNamed(image string) bool {
	return slices.ContainsFunc(j.modules(), func(m *v1beta1.Module) bool { return imageIn(m) == image })
}

// maxUnavailable leaves out what came back without an object to report in: its first order is given
// at once (docs/design/0047-something-to-lose.md, 1). Nor does a node count that failed with what
// the Module no longer asks for: what is live stays there.
func maxUnavailable(j *trial, o order) string {
	if !j.changes(o.m, o.now) || j.wasGone(o.m) {
		return ""
	}
	var changing []string
	for _, other := range j.w.nodes {
		config := last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, other.name)
		now := j.orderOf(config)
		if other == o.m {
			now = o.now
		} else if now != nil && j.stays(config) && !j.isNamed(now.Config.ContainerImage) {
			continue
		}
		if j.changes(other, now) && !j.wasGone(other) {
			changing = append(changing, other.name)
		}
	}
	if most := j.most(); most > 0 && len(changing) > most {
		return fmt.Sprintf("%v are told to reload at the same time, and maxUnavailable is %d", changing, most)
	}
	return ""
}

func firstAlone(j *trial, o order) string {
	if !j.turns(o) || j.wasGone(o.m) {
		return ""
	}
	image, together := o.now.Config.ContainerImage, ""
	for _, other := range j.w.nodes {
		if j.live(other) == image {
			return ""
		}
		now := j.orderOf(last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, other.name))
		if other != o.m && !j.wasGone(other) && j.changes(other, now) && now.Config.ContainerImage == image {
			together = other.name
		}
	}
	if together == "" {
		return ""
	}
	return fmt.Sprintf("%s and %s are told to reload %s, which no node has shown to work", together, o.m.name, images.Short(image))
}

func failureHalts(j *trial, o order) string {
	if !j.turns(o) || !every(j.modules(), func(m *v1beta1.Module) bool { return m != nil && ptr.Deref(m.Spec.Rollout.PauseOnFailure, true) }) {
		return ""
	}
	for _, other := range j.w.nodes {
		if other == o.m || len(seen[*corev1.Node](j.judge, kindNode, other.name)) == 0 {
			continue
		}
		failed := func(n *v1beta1.NodeModulesConfig) bool {
			x, a := j.orderOf(n), j.attemptOf(n)
			return loads(x) && reflect.DeepEqual(x.Config, o.now.Config) && a != nil && a.State == v1beta1.AttemptFailed && j.answers(other, n)
		}
		if every(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, other.name), failed) {
			return fmt.Sprintf("%s is told to reload %s, with which %s has failed", o.m.name, images.Short(o.now.Config.ContainerImage), other.name)
		}
	}
	return ""
}

// answers says whether a node's agent has written its status since the order became what it is.
func (j *trial) answers(m *machine, n *v1beta1.NodeModulesConfig) bool {
	past := j.past[kindOrders+"/"+m.name]
	for i := len(past) - 1; i > 0; i-- {
		before, _ := past[i-1].object.(*v1beta1.NodeModulesConfig)
		now, _ := past[i].object.(*v1beta1.NodeModulesConfig)
		switch {
		case before == nil || now == nil || !reflect.DeepEqual(j.orderOf(now), j.orderOf(n)):
			return false
		case !reflect.DeepEqual(before.Status, now.Status):
			return reflect.DeepEqual(j.orderOf(before), j.orderOf(n))
		}
	}
	return false
}

// most is the largest maxUnavailable that may count; 0: none does.
func (j *trial) most() (most int) {
	for _, m := range j.modules() {
		if m != nil {
			most = max(most, int(m.Spec.Rollout.MaxUnavailable.IntVal))
		}
	}
	return most
}

func notReadyCounts(j *trial, o order) string {
	// What goes on after a pause had its turn, and a turn that had begun ends with what is newest.
	had := last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, o.m.name)
	live := j.liveIn(had)
	begun := loads(o.was) && live != nil && live.Config != nil && !policies.Same(live.Config, &o.was.Config) && !j.stays(had)
	begins := j.turns(o) && !begun && imageOf(o.was) != imageOf(o.now)
	if !begins && !j.gives(o) {
		return ""
	}
	var away []string
	for _, other := range j.w.nodes {
		counts := every(seen[*corev1.Node](j.judge, kindNode, other.name), func(n *corev1.Node) bool {
			return n != nil && !kubelet.IsReady(n) && !taints.KeepOff(n) && every(j.modules(), func(m *v1beta1.Module) bool { return selects(m, n) })
		})
		if other != o.m && counts {
			away = append(away, other.name)
		}
	}
	if most := j.most(); most > 0 && len(away) >= most {
		return fmt.Sprintf("%s is ordered %s while %v are not Ready, and maxUnavailable is %d", o.m.name, say(o.now), away, most)
	}
	return ""
}

// gives says whether a node that is no longer selected is told to give up what it has, which takes
// a place unless people have confirmed that all go, or a taint asks for it.
func (j *trial) gives(o order) bool {
	live := j.live(o.m)
	return unloads(o.now) && loads(o.was) && live != "" && live == o.was.Config.ContainerImage && j.loadedByAgent(o.m) && !j.leaves() &&
		!slices.ContainsFunc(j.modules(), confirmed) &&
		!slices.ContainsFunc(seen[*corev1.Node](j.judge, kindNode, o.m.name), taints.AskForUnload)
}

func quarantineSpreads(j *trial, o order) string {
	if !loads(o.now) || o.now.Delivery == nil || o.was != nil && o.was.Delivery != nil && o.was.Delivery.ID == o.now.Delivery.ID {
		return ""
	}
	for _, other := range j.w.nodes {
		struck := func(n *v1beta1.NodeModulesConfig) bool {
			a := j.attemptOf(n)
			return a != nil && a.Strike != nil && a.Strike.Delivery == o.now.Delivery.ID && a.Strike.Retry.Equal(o.now.Retry)
		}
		if other != o.m && every(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, other.name), struck) &&
			every(seen[*corev1.Node](j.judge, kindNode, other.name), func(n *corev1.Node) bool { return n != nil }) {
			return fmt.Sprintf("%s is ordered %s, which took %s down", o.m.name, say(o.now), other.name)
		}
	}
	return ""
}

func taintsKeepOff(j *trial, o order) string {
	if o.was == nil && loads(o.now) && j.live(o.m) == "" && every(seen[*corev1.Node](j.judge, kindNode, o.m.name), taints.KeepOff) {
		return fmt.Sprintf("%s has a taint, and is ordered %s", o.m.name, say(o.now))
	}
	return ""
}

func pausedRolloutBeginsNothing(j *trial, o order) string {
	if j.turns(o) && every(j.modules(), func(m *v1beta1.Module) bool { return m != nil && m.Spec.Rollout.Paused }) {
		return fmt.Sprintf("%s is told to reload %s while the rollout is paused", o.m.name, images.Short(o.now.Config.ContainerImage))
	}
	return ""
}

func pauseKeepsOrders(j *trial, o order) string {
	if !every(j.modules(), paused) {
		return ""
	}
	if o.was != nil && o.now != nil {
		now, was := *o.now, *o.was
		for _, x := range []*v1beta1.NodeModuleSpec{&now, &was} {
			x.Paused, x.SkipChecks, x.Retry, x.Next = false, false, nil, nil
		}
		if was.Delivery != nil && now.Delivery != nil && (now.Delivery.CarrierUID == "" || j.holds(o.m.name, was.Delivery.ID)) {
			now.Delivery, was.Delivery = &v1beta1.Delivery{ID: now.Delivery.ID}, &v1beta1.Delivery{ID: was.Delivery.ID} // its carrier is over
		}
		if reflect.DeepEqual(now, was) {
			return ""
		}
	}
	return fmt.Sprintf("the Module is paused, and %s is ordered %s after %s", o.m.name, all(o.now), all(o.was))
}

// holds says whether a node had a delivery whatever the operator knew.
func (j *judge) holds(node, id string) bool {
	return every(seen[*v1beta1.NodeModulesConfig](j, kindOrders, node), func(n *v1beta1.NodeModulesConfig) bool {
		return n != nil && slices.ContainsFunc(n.Status.Artifacts, func(a v1beta1.NodeArtifact) bool { return a.ID == id })
	})
}

// all is an order as it is written.
func all(o *v1beta1.NodeModuleSpec) string {
	text, err := json.Marshal(o)
	must(err)
	return string(text)
}

// leaves says whether some Module that the operator may know is gone, going, or loads nothing.
func (j *trial) leaves() bool {
	return slices.ContainsFunc(j.modules(), func(m *v1beta1.Module) bool {
		return m == nil || m.DeletionTimestamp != nil || m.Spec.ModuleLoader == nil
	})
}

func noUnaskedAbsent(j *trial, o order) string {
	if !unloads(o.now) || unloads(o.was) || len(j.modules()) == 0 || j.leaves() {
		return ""
	}
	for _, m := range j.modules() {
		for _, n := range seen[*corev1.Node](j.judge, kindNode, o.m.name) {
			if !selects(m, n) {
				return ""
			}
		}
	}
	return fmt.Sprintf("%s is told to unload (%s), and is selected", o.m.name, o.now.Reason)
}

func graceIsKept(j *trial, o order) string {
	if !unloads(o.now) || unloads(o.was) || len(j.modules()) == 0 || j.leaves() ||
		slices.ContainsFunc(seen[*corev1.Node](j.judge, kindNode, o.m.name), taints.AskForUnload) {
		return ""
	}
	if at, ok := j.wanted[o.m.name]; ok && j.w.clock.Since(at) < grace {
		return fmt.Sprintf("%s is told to unload (%s), and was seen selected %s ago", o.m.name, o.now.Reason, j.w.clock.Since(at))
	}
	return ""
}

func absentSaysWhy(_ *trial, o order) string {
	if unloads(o.now) && (o.now.Reason == "" || strings.ContainsAny(o.now.Reason, " .:")) {
		return fmt.Sprintf("%s is told to unload with the reason %q", o.m.name, o.now.Reason)
	}
	return ""
}

func ordersLeaveAnswered(j *trial, o order) string {
	if o.was == nil || o.now != nil {
		return ""
	}
	answered := slices.ContainsFunc(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, o.m.name), func(n *v1beta1.NodeModulesConfig) bool {
		a := j.attemptOf(n)
		return a != nil && a.State == v1beta1.AttemptAbsent
	})
	if !unloads(o.was) || !answered {
		return fmt.Sprintf("%s has no order any longer; it had %s, and the agent said %s", o.m.name, say(o.was), j.tried(o.config))
	}
	return ""
}

func absentIsHeld(_ *trial, o order) string {
	if unloads(o.now) && !slices.Contains(o.config.Finalizers, orderFinalizer) {
		return fmt.Sprintf("%s is told to unload, and its object has the finalizers %v", o.m.name, o.config.Finalizers)
	}
	return ""
}

func ordersHaveNodes(j *trial, o order) string {
	nodes := seen[*corev1.Node](j.judge, kindNode, o.m.name)
	if o.now == nil || o.was != nil {
		return ""
	}
	if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n != nil && owns(n, o.config) }) {
		return fmt.Sprintf("%s gets its first order, owned by %v, which is no such node", o.m.name, o.config.OwnerReferences)
	}
	return ""
}

func ordersAreComplete(j *trial, o order) string {
	if !loads(o.now) || o.was != nil && reflect.DeepEqual(o.now.Config, o.was.Config) {
		return ""
	}
	kernel := slices.ContainsFunc(seen[*corev1.Node](j.judge, kindNode, o.m.name), func(n *corev1.Node) bool {
		return n != nil && n.Status.NodeInfo.KernelVersion == o.now.Config.KernelVersion
	})
	if o.now.Delivery == nil || !kernel || o.now.Config.Modprobe.ModuleName != j.name {
		return fmt.Sprintf("%s is ordered %+v for kernel %q, delivery %v", o.m.name, o.now.Config, o.now.Config.KernelVersion, o.now.Delivery)
	}
	return ""
}

// carried has a promise look at each new carrier.
func carried(check func(*trial, *corev1.Pod) string) func(*trial, *write) string {
	return func(j *trial, r *write) string {
		now, before, _ := both[*corev1.Pod](r)
		if now == nil || before != nil && before.UID == now.UID || r.actor != "module" || !strings.HasPrefix(now.Name, v1beta1.CarrierPrefix) {
			return ""
		}
		return check(j, now)
	}
}

func carriersAreAsked(j *trial, pod *corev1.Pod) string {
	image := kubelet.Carries(pod)
	if j.isNamed(image) {
		return ""
	}
	for _, m := range j.w.nodes { // an order stands, or others still serve an earlier build
		for _, n := range seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name) {
			if o := j.orderOf(n); loads(o) && o.Config.ContainerImage == image {
				return ""
			}
		}
	}
	return fmt.Sprintf("%s gets a carrier of %s, which neither the Module nor an order names", pod.Spec.NodeName, images.Short(image))
}

func carriersAreNeeded(j *trial, pod *corev1.Pod) string {
	id := pod.Annotations[v1beta1.DeliveryAnnotation]
	if id != "" && j.holds(pod.Spec.NodeName, id) {
		return fmt.Sprintf("%s gets a carrier of %s, which it has", pod.Spec.NodeName, images.Short(kubelet.Carries(pod)))
	}
	return ""
}

func carriersHaveNodes(j *trial, pod *corev1.Pod) string {
	if !slices.ContainsFunc(seen[*corev1.Node](j.judge, kindNode, pod.Spec.NodeName), func(n *corev1.Node) bool { return n != nil }) {
		return fmt.Sprintf("a carrier is made for %q, which is no node", pod.Spec.NodeName)
	}
	return ""
}
