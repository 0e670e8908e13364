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

	"github.com/drover-project/drover/api/kmm/v1beta1"
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
func ordered(check func(*judge, order) string) func(*judge, *write) string {
	return func(j *judge, r *write) string {
		now, before, _ := both[*v1beta1.NodeModulesConfig](r)
		m := j.w.machineOf(r.key)
		o := order{m, orderOf(now), orderOf(before), now}
		if r.actor != "module" || m == nil || now == nil || reflect.DeepEqual(o.now, o.was) {
			return ""
		}
		return check(j, o)
	}
}

// begins says whether the order has what is live make room, and did not before.
func (o order) begins() bool {
	return o.m.changes(o.now) && (say(o.was) != say(o.now)) && !o.m.sameChange(o.was, o.now)
}

// sameChange says whether the node was ordered the same before, not paused.
func (m *machine) sameChange(was, now *v1beta1.NodeModuleSpec) bool {
	return m.changes(was) && was.Config.ContainerImage == now.Config.ContainerImage
}

// changes says whether what is live has to make room for what is ordered, now.
func (m *machine) changes(o *v1beta1.NodeModuleSpec) bool {
	live := m.live()
	return loads(o) && live != "" && m.loadedByAgent() && !o.Paused && o.UnloadPolicy != v1beta1.UnloadOnReboot &&
		live != o.Config.ContainerImage
}

func noOutdatedOrder(j *judge, o order) string {
	image, had := "", ""
	if loads(o.now) {
		image = o.now.Config.ContainerImage
	}
	if loads(o.was) {
		had = o.was.Config.ContainerImage
	}
	if image == "" || image == had && o.was.Paused == o.now.Paused || o.now.Paused || j.kernelOf(o.m.name).workedEver(image) {
		return ""
	}
	var all []string
	for _, m := range j.modules() {
		all = append(all, short(imageIn(m)))
	}
	if slices.Contains(all, short(image)) || image == o.m.live() {
		return ""
	}
	return fmt.Sprintf("%s is ordered %s, which never worked there; the Module names %v", o.m.name, say(o.now), all)
}

func maxUnavailable(j *judge, o order) string {
	if !o.m.changes(o.now) {
		return ""
	}
	most := 0
	for _, m := range j.modules() {
		if m != nil {
			most = max(most, int(m.Spec.Rollout.MaxUnavailable.IntVal))
		}
	}
	var changing []string
	for _, other := range j.w.nodes {
		now := orderOf(last[*v1beta1.NodeModulesConfig](j, kindOrders, other.name))
		if other == o.m {
			now = o.now
		}
		if other.changes(now) {
			changing = append(changing, other.name)
		}
	}
	if most > 0 && len(changing) > most {
		return fmt.Sprintf("%v are told to reload at the same time, and maxUnavailable is %d", changing, most)
	}
	return ""
}

func firstAlone(j *judge, o order) string {
	if !o.begins() {
		return ""
	}
	image, together := o.now.Config.ContainerImage, ""
	for _, other := range j.w.nodes {
		if other.live() == image {
			return ""
		}
		now := orderOf(last[*v1beta1.NodeModulesConfig](j, kindOrders, other.name))
		if other != o.m && other.changes(now) && now.Config.ContainerImage == image {
			together = other.name
		}
	}
	if together == "" {
		return ""
	}
	return fmt.Sprintf("%s and %s are told to reload %s, which no node has shown to work", together, o.m.name, short(image))
}

func failureHalts(j *judge, o order) string {
	if !o.begins() || !every(j.modules(), func(m *v1beta1.Module) bool { return m != nil && ptrTrue(m.Spec.Rollout.PauseOnFailure) }) {
		return ""
	}
	for _, other := range j.w.nodes {
		if other == o.m || len(seen[*corev1.Node](j, kindNode, other.name)) == 0 {
			continue
		}
		failed := func(n *v1beta1.NodeModulesConfig) bool {
			x, a := orderOf(n), attemptOf(n)
			return loads(x) && reflect.DeepEqual(x.Config, o.now.Config) && a != nil && a.State == v1beta1.AttemptFailed && j.answers(other, n)
		}
		if every(seen[*v1beta1.NodeModulesConfig](j, kindOrders, other.name), failed) {
			return fmt.Sprintf("%s is told to reload %s, with which %s has failed", o.m.name, short(o.now.Config.ContainerImage), other.name)
		}
	}
	return ""
}

// answers says whether a node's agent has written its status since the order became what it is.
func (j *judge) answers(m *machine, n *v1beta1.NodeModulesConfig) bool {
	past := j.past[kindOrders+"/"+m.name]
	for i := len(past) - 1; i > 0; i-- {
		before, _ := past[i-1].object.(*v1beta1.NodeModulesConfig)
		now, _ := past[i].object.(*v1beta1.NodeModulesConfig)
		switch {
		case before == nil || now == nil || !reflect.DeepEqual(orderOf(now), orderOf(n)):
			return false
		case !reflect.DeepEqual(before.Status, now.Status):
			return reflect.DeepEqual(orderOf(before), orderOf(n))
		}
	}
	return false
}

func ptrTrue(b *bool) bool { return b == nil || *b }

func pausedRolloutBeginsNothing(j *judge, o order) string {
	if o.begins() && every(j.modules(), func(m *v1beta1.Module) bool { return m != nil && m.Spec.Rollout.Paused }) {
		return fmt.Sprintf("%s is told to reload %s while the rollout is paused", o.m.name, short(o.now.Config.ContainerImage))
	}
	return ""
}

func pauseKeepsOrders(j *judge, o order) string {
	if !every(j.modules(), paused) {
		return ""
	}
	if o.was != nil && o.now != nil {
		now, was := *o.now, *o.was
		for _, x := range []*v1beta1.NodeModuleSpec{&now, &was} {
			x.Paused, x.SkipChecks, x.Retry, x.Next = false, false, nil, nil
		}
		if was.Delivery != nil && now.Delivery != nil && j.holds(o.m.name, was.Delivery.ID) {
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
func (j *judge) leaves() bool {
	return slices.ContainsFunc(j.modules(), func(m *v1beta1.Module) bool {
		return m == nil || m.DeletionTimestamp != nil || m.Spec.ModuleLoader == nil
	})
}

func noUnaskedAbsent(j *judge, o order) string {
	if !unloads(o.now) || unloads(o.was) || len(j.modules()) == 0 || j.leaves() {
		return ""
	}
	for _, m := range j.modules() {
		for _, n := range seen[*corev1.Node](j, kindNode, o.m.name) {
			if !selects(m, n) {
				return ""
			}
		}
	}
	return fmt.Sprintf("%s is told to unload (%s), and is selected", o.m.name, o.now.Reason)
}

func graceIsKept(j *judge, o order) string {
	if !unloads(o.now) || unloads(o.was) || len(j.modules()) == 0 || j.leaves() {
		return ""
	}
	if at, ok := j.wanted[o.m.name]; ok && j.w.clock.Since(at) < grace {
		return fmt.Sprintf("%s is told to unload (%s), and was seen selected %s ago", o.m.name, o.now.Reason, j.w.clock.Since(at))
	}
	return ""
}

func absentSaysWhy(_ *judge, o order) string {
	if unloads(o.now) && (o.now.Reason == "" || strings.ContainsAny(o.now.Reason, " .:")) {
		return fmt.Sprintf("%s is told to unload with the reason %q", o.m.name, o.now.Reason)
	}
	return ""
}

func ordersLeaveAnswered(j *judge, o order) string {
	if o.was == nil || o.now != nil {
		return ""
	}
	answered := slices.ContainsFunc(seen[*v1beta1.NodeModulesConfig](j, kindOrders, o.m.name), func(n *v1beta1.NodeModulesConfig) bool {
		a := attemptOf(n)
		return a != nil && a.State == v1beta1.AttemptAbsent
	})
	if !unloads(o.was) || !answered {
		return fmt.Sprintf("%s has no order any longer; it had %s, and the agent said %s", o.m.name, say(o.was), tried(o.config))
	}
	return ""
}

func absentIsHeld(_ *judge, o order) string {
	if unloads(o.now) && !slices.Contains(o.config.Finalizers, "drover.dev/orders") {
		return fmt.Sprintf("%s is told to unload, and its object has the finalizers %v", o.m.name, o.config.Finalizers)
	}
	return ""
}

func ordersHaveNodes(j *judge, o order) string {
	nodes := seen[*corev1.Node](j, kindNode, o.m.name)
	if o.now == nil || o.was != nil {
		return ""
	}
	if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
		return n != nil && len(o.config.OwnerReferences) == 1 && o.config.OwnerReferences[0].UID == n.UID
	}) {
		return fmt.Sprintf("%s gets its first order, owned by %v, which is no such node", o.m.name, o.config.OwnerReferences)
	}
	return ""
}

func ordersAreComplete(j *judge, o order) string {
	if !loads(o.now) || o.was != nil && reflect.DeepEqual(o.now.Config, o.was.Config) {
		return ""
	}
	if o.now.Delivery == nil || o.now.Config.KernelVersion != release || o.now.Config.Modprobe.ModuleName != name {
		return fmt.Sprintf("%s is ordered %+v for kernel %q, delivery %v", o.m.name, o.now.Config, o.now.Config.KernelVersion, o.now.Delivery)
	}
	return ""
}
