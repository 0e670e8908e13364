// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// went has a promise look at the Module when its last finalizer goes.
func went(check func(*judge, *v1beta1.Module) string) func(*judge, *write) string {
	return func(j *judge, r *write) string {
		now, before, _ := both[*v1beta1.Module](r)
		if now != nil || before == nil || before.DeletionTimestamp == nil || r.actor != "module" {
			return ""
		}
		return check(j, before)
	}
}

func departsWhole(j *judge, _ *v1beta1.Module) string {
	for _, m := range j.w.nodes {
		o := orderOf(last[*v1beta1.NodeModulesConfig](j, kindOrders, m.name))
		if loads(o) && last[*corev1.Node](j, kindNode, m.name) != nil {
			return fmt.Sprintf("the Module is gone, and %s is ordered %s", m.name, say(o))
		}
	}
	return ""
}

func departsLate(j *judge, module *v1beta1.Module) string {
	if j.w.clock.Since(module.DeletionTimestamp.Time) >= v1beta1.DefaultDeletionTimeout {
		return ""
	}
	for _, m := range j.w.nodes {
		open := every(seen[*v1beta1.NodeModulesConfig](j, kindOrders, m.name), func(n *v1beta1.NodeModulesConfig) bool {
			a := attemptOf(n)
			return unloads(orderOf(n)) && (a == nil || a.State != v1beta1.AttemptAbsent)
		})
		there := every(seen[*corev1.Node](j, kindNode, m.name), func(n *corev1.Node) bool { return n != nil && n.DeletionTimestamp == nil })
		if open && there {
			return fmt.Sprintf("the Module is gone after %s, and %s has not answered", j.w.clock.Since(module.DeletionTimestamp.Time), m.name)
		}
	}
	return ""
}

func pausedStays(j *judge, module *v1beta1.Module) string {
	known := j.modules()
	if !slices.ContainsFunc(j.w.nodes, func(m *machine) bool {
		return orderOf(last[*v1beta1.NodeModulesConfig](j, kindOrders, m.name)) != nil
	}) {
		return "" // nothing is left to touch
	}
	if paused(module) && every(known, func(m *v1beta1.Module) bool { return m == nil || paused(m) }) && known[0] != nil {
		return "the Module is gone, and was paused"
	}
	return ""
}

// carried has a promise look at each new carrier.
func carried(check func(*judge, *corev1.Pod) string) func(*judge, *write) string {
	return func(j *judge, r *write) string {
		now, before, _ := both[*corev1.Pod](r)
		if now == nil || before != nil && before.UID == now.UID || r.actor != "module" || !strings.HasPrefix(now.Name, v1beta1.CarrierPrefix) {
			return ""
		}
		return check(j, now)
	}
}

// carries is the image of a carrier.
func carries(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil {
			return v.Image.Reference
		}
	}
	return ""
}

func carriersAreAsked(j *judge, pod *corev1.Pod) string {
	image := carries(pod)
	if slices.ContainsFunc(j.modules(), func(m *v1beta1.Module) bool { return imageIn(m) == image }) {
		return ""
	}
	for _, m := range j.w.nodes { // an order stands, or others still serve an earlier build
		for _, n := range seen[*v1beta1.NodeModulesConfig](j, kindOrders, m.name) {
			if o := orderOf(n); loads(o) && o.Config.ContainerImage == image {
				return ""
			}
		}
	}
	return fmt.Sprintf("%s gets a carrier of %s, which neither the Module nor an order names", pod.Spec.NodeName, short(image))
}

func carriersAreNeeded(j *judge, pod *corev1.Pod) string {
	id := pod.Annotations[v1beta1.DeliveryAnnotation]
	if id != "" && j.holds(pod.Spec.NodeName, id) {
		return fmt.Sprintf("%s gets a carrier of %s, which it has", pod.Spec.NodeName, short(carries(pod)))
	}
	return ""
}

func carriersHaveNodes(j *judge, pod *corev1.Pod) string {
	if !slices.ContainsFunc(seen[*corev1.Node](j, kindNode, pod.Spec.NodeName), func(n *corev1.Node) bool { return n != nil }) {
		return fmt.Sprintf("a carrier is made for %q, which is no node", pod.Spec.NodeName)
	}
	return ""
}
