// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kubelet"
	"github.com/drover-project/drover/test/sim/taints"
)

// ours are labels of nodes that only the operator's labels give.
func ours(labels map[string]string) map[string]string {
	own := map[string]string{}
	for k, v := range labels {
		if strings.Contains(k, "kmm.node.kubernetes.io/") {
			own[k] = v
		}
	}
	return own
}

// writers: each part of an object has one writer.
func ordersHaveOneWriter(_ *trial, r *write) string {
	now, before, _ := both[*v1beta1.NodeModulesConfig](r)
	if now == nil {
		return ""
	}
	if before == nil {
		before = &v1beta1.NodeModulesConfig{}
	}
	if r.actor != "module" && !reflect.DeepEqual(now.Spec, before.Spec) {
		return fmt.Sprintf("%s wrote orders of %s", r.actor, r.key)
	}
	if r.actor != r.key+"'s agent" && !reflect.DeepEqual(now.Status, before.Status) {
		return fmt.Sprintf("%s wrote the status of %s", r.actor, r.key)
	}
	return ""
}

func labelsHaveOneWriter(_ *trial, r *write) string {
	now, before, _ := both[*corev1.Node](r)
	if now == nil || r.actor == "node" {
		return ""
	}
	had := map[string]string{}
	if before != nil && before.UID == now.UID {
		had = ours(before.Labels)
	}
	if own := ours(now.Labels); !reflect.DeepEqual(own, had) {
		return fmt.Sprintf("%s made the labels of %s %v of %v", r.actor, r.key, own, had)
	}
	return ""
}

// reported has a promise look at each status that a node's agent writes.
func reported(check func(j *trial, m *machine, now, before *v1beta1.NodeModulesConfig) string) func(*trial, *write) string {
	return func(j *trial, r *write) string {
		now, before, _ := both[*v1beta1.NodeModulesConfig](r)
		m := j.w.machineOf(r.key)
		if now == nil || m == nil || r.actor != r.key+"'s agent" {
			return ""
		}
		return check(j, m, now, before)
	}
}

func liveIsSo(j *trial, m *machine, now, before *v1beta1.NodeModulesConfig) string {
	said := j.liveIn(now)
	if said == nil || tookBack(now, before) && reflect.DeepEqual(said, j.liveIn(before)) {
		return ""
	}
	boot, err := m.kernel.BootID()
	must(err)
	image := "?"
	if said.Observed != nil {
		image = images.OfBuild(said.Observed.BuildID)
	}
	if image != j.live(m) || said.BootID != boot {
		return fmt.Sprintf("%s says that %s is live in the boot %s; %q is, in the boot %s", m.name, images.Short(image), said.BootID,
			images.Short(j.live(m)), boot)
	}
	return ""
}

// tookBack says whether an agent only takes back that it has unloaded, of any Module. It does so
// before it looks at the kernel and loads, and leaves the rest as it said it before.
func tookBack(now, before *v1beta1.NodeModulesConfig) bool {
	return before != nil && len(now.Status.Attempts) < len(before.Status.Attempts) && slices.ContainsFunc(before.Status.Attempts, absent)
}

func absentIsSo(j *trial, m *machine, now, _ *v1beta1.NodeModulesConfig) string {
	if a := j.attemptOf(now); a != nil && a.State == v1beta1.AttemptAbsent && j.live(m) != "" && j.loadedByAgent(m) {
		return fmt.Sprintf("%s says that the kernel module is not there, and %s is", m.name, images.Short(j.live(m)))
	}
	return ""
}

func openOrdersAreTold(j *trial, m *machine, now, before *v1beta1.NodeModulesConfig) string {
	o, a := j.orderOf(m.shown), j.attemptOf(now)
	if !reflect.DeepEqual(o, j.orderOf(now)) {
		return "" // of an order that the agent has not seen
	}
	if tookBack(now, before) {
		return ""
	}
	if loads(o) && o.Delivery != nil && !slices.ContainsFunc(now.Status.Artifacts, func(a v1beta1.NodeArtifact) bool {
		return a.ID == o.Delivery.ID
	}) {
		return "" // waiting for a carrier writes nothing
	}
	open := unloads(o) || loads(o) && (j.live(m) != o.Config.ContainerImage || j.liveIn(now) == nil)
	if open && a == nil {
		return fmt.Sprintf("%s is ordered %s, has %q live, and says nothing of it", m.name, say(o), images.Short(j.live(m)))
	}
	return ""
}

func attemptsNameCauses(_ *trial, _ *machine, now, _ *v1beta1.NodeModulesConfig) string {
	for _, a := range now.Status.Attempts {
		if a.State != v1beta1.AttemptAbsent && (a.Reason == "" || a.Message == "") {
			return fmt.Sprintf("%s: %s without a reason or a message: %q, %q", now.Name, a.State, a.Reason, a.Message)
		}
	}
	return ""
}

func attemptReasons(_ *trial, _ *machine, now, _ *v1beta1.NodeModulesConfig) string {
	for _, a := range now.Status.Attempts {
		// An answered unload has its order's reason, which is not of the set.
		if a.State != v1beta1.AttemptAbsent && !reasons.Known(a.Reason) {
			return fmt.Sprintf("%s: %s has the reason %q", now.Name, a.State, a.Reason)
		}
	}
	return ""
}

func attemptTimes(j *trial, m *machine, now, before *v1beta1.NodeModulesConfig) string {
	a, was := j.attemptOf(now), j.attemptOf(before)
	if a == nil || was == nil || now.UID != before.UID {
		return ""
	}
	if same := a.State == was.State && a.Reason == was.Reason; same != a.LastTransitionTime.Equal(&was.LastTransitionTime) &&
		(same || a.LastTransitionTime.Before(&was.LastTransitionTime) && !m.stepped) {
		return fmt.Sprintf("%s: %s/%s since %s became %s/%s since %s", now.Name, was.State, was.Reason, was.LastTransitionTime, a.State, a.Reason,
			a.LastTransitionTime)
	}
	return ""
}

// serves says whether a node's report is of what its order says, live in the node's boot.
func (j *trial) serves(node string) func(*v1beta1.NodeModulesConfig) bool {
	return func(n *v1beta1.NodeModulesConfig) bool {
		o, live := j.orderOf(n), j.liveIn(n)
		return loads(o) && live != nil && live.Config != nil && (live.Config.ContainerImage == o.Config.ContainerImage || j.stays(n)) &&
			slices.ContainsFunc(seen[*corev1.Node](j.judge, kindNode, node), func(n *corev1.Node) bool {
				return n != nil && n.Status.NodeInfo.BootID == live.BootID
			})
	}
}

// served says whether the operator may know that a node has what it is ordered.
func (j *trial) served(node string) bool {
	return slices.ContainsFunc(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, node), j.serves(node))
}

func readyIsEarned(j *trial, r *write) string {
	now, before, _ := both[*corev1.Node](r)
	if now == nil || r.actor != "node" {
		return ""
	}
	_, has := now.Labels[v1beta1.ReadyLabel(namespace, j.name)]
	had := false
	if before != nil {
		_, had = before.Labels[v1beta1.ReadyLabel(namespace, j.name)]
	}
	if has && !had && !j.served(r.key) {
		n := last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, r.key)
		return fmt.Sprintf("%s gets the ready label; it is ordered %s, and says %+v", r.key, say(j.orderOf(n)), j.liveIn(n))
	}
	return ""
}

// told has a promise look at each status of the Module.
func told(check func(j *trial, now, before *v1beta1.Module) string) func(*trial, *write) string {
	return func(j *trial, r *write) string {
		now, before, _ := both[*v1beta1.Module](r)
		if now == nil || before != nil && before.UID == now.UID && reflect.DeepEqual(now.Status, before.Status) {
			return ""
		}
		if before == nil || before.UID != now.UID {
			before = &v1beta1.Module{}
		}
		return check(j, now, before)
	}
}

// partOf names the controllers that write problems, with their part.
var partOf = map[string]v1beta1.ProblemPart{"module": v1beta1.ProblemDeliveries, "plugin": v1beta1.ProblemPlugin,
	"moduleimage": v1beta1.ProblemImages, "startup": v1beta1.ProblemStartupTaint}

func statusHasOneWriter(j *trial, r *write) string {
	return told(func(_ *trial, now, before *v1beta1.Module) string {
		a, b := now.Status, before.Status
		a.Problems, b.Problems = nil, nil
		if r.actor != "status" && !reflect.DeepEqual(a, b) {
			return fmt.Sprintf("%s wrote the Module's status", r.actor)
		}
		own := func(p v1beta1.ModuleProblem) bool { return p.Part == partOf[r.actor] }
		if !slices.Equal(slices.DeleteFunc(slices.Clone(now.Status.Problems), own),
			slices.DeleteFunc(slices.Clone(before.Status.Problems), own)) {
			return fmt.Sprintf("%s wrote another's problems: %v became %v", r.actor, before.Status.Problems, now.Status.Problems)
		}
		return ""
	})(j, r)
}

func observedNotAhead(_ *trial, now, before *v1beta1.Module) string {
	if g := now.Status.ObservedGeneration; g > now.Generation || g < before.Status.ObservedGeneration {
		return fmt.Sprintf("observedGeneration became %d of %d, and the generation is %d", g, before.Status.ObservedGeneration, now.Generation)
	}
	return ""
}

func conditionReasons(_ *trial, now, _ *v1beta1.Module) string {
	for _, c := range now.Status.Conditions {
		if !reasons.Known(c.Reason) {
			return fmt.Sprintf("the condition %s has the reason %q", c.Type, c.Reason)
		}
	}
	for _, p := range now.Status.Problems {
		if !reasons.Known(p.Reason) {
			return fmt.Sprintf("the problem of %s has the reason %q", p.Part, p.Reason)
		}
	}
	return ""
}

func conditionsNameCauses(_ *trial, now, _ *v1beta1.Module) string {
	for _, c := range now.Status.Conditions {
		if c.Status != metav1.ConditionTrue && c.Message == "" {
			return fmt.Sprintf("the condition %s is %s for %s, without a message", c.Type, c.Status, c.Reason)
		}
	}
	return ""
}

func conditionTimes(j *trial, now, before *v1beta1.Module) string {
	for _, c := range now.Status.Conditions {
		was := meta.FindStatusCondition(before.Status.Conditions, c.Type)
		if was == nil {
			continue
		}
		same := c.LastTransitionTime.Equal(&was.LastTransitionTime)
		if (c.Status == was.Status) && !same || c.LastTransitionTime.Before(&was.LastTransitionTime) && !j.w.stepped {
			return fmt.Sprintf("%s was %s since %s, and is %s since %s", c.Type, was.Status, was.LastTransitionTime, c.Status, c.LastTransitionTime)
		}
	}
	return ""
}

func isTrue(m *v1beta1.Module, condition string) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, condition)
}

func readyIsAll(_ *trial, now, _ *v1beta1.Module) string {
	if !isTrue(now, "Ready") {
		return ""
	}
	for _, c := range now.Status.Conditions {
		if c.Type == "Stalled" || c.Status != metav1.ConditionTrue {
			return fmt.Sprintf("Ready is True, and %s is %s", c.Type, c.Status)
		}
	}
	return ""
}

func stalledIsFinal(_ *trial, now, _ *v1beta1.Module) string {
	stalled, ready := meta.FindStatusCondition(now.Status.Conditions, "Stalled"), meta.FindStatusCondition(now.Status.Conditions, "Ready")
	switch {
	case stalled == nil:
		return ""
	case stalled.Status != metav1.ConditionTrue || ready == nil || ready.Status == metav1.ConditionTrue:
		return fmt.Sprintf("Stalled is %s beside %+v", stalled.Status, ready)
	case stalled.Reason != ready.Reason || stalled.Message != ready.Message:
		return fmt.Sprintf("Stalled says %s: %s; Ready says %s: %s", stalled.Reason, stalled.Message, ready.Reason, ready.Message)
	}
	return ""
}

func countsAreEarned(j *trial, now, before *v1beta1.Module) string {
	if now.Status.ModuleLoader == before.Status.ModuleLoader {
		return "" // another part of the status was written
	}
	most := 0
	for _, m := range j.w.nodes {
		if j.served(m.name) {
			most++
		}
	}
	if n := int(now.Status.ModuleLoader.AvailableNumber); n > most {
		return fmt.Sprintf("availableNumber is %d, and at most %d nodes may have been known to have it", n, most)
	}
	return ""
}

func loadedIsEarned(j *trial, now, before *v1beta1.Module) string {
	if !isTrue(now, "Loaded") || isTrue(before, "Loaded") && now.Status.ObservedGeneration == before.Status.ObservedGeneration {
		return ""
	}
	for _, m := range j.w.nodes {
		nodes := seen[*corev1.Node](j.judge, kindNode, m.name)
		wanted := every(j.modules(), func(module *v1beta1.Module) bool {
			return every(nodes, func(n *corev1.Node) bool { return selects(module, n) && !taints.KeepOff(n) })
		})
		if wanted && !j.served(m.name) {
			return fmt.Sprintf("Loaded is True, and %s does not say that it has the kernel module", m.name)
		}
	}
	return ""
}

// went has a promise look at the Module when its last finalizer goes.
func went(check func(*trial, *v1beta1.Module) string) func(*trial, *write) string {
	return func(j *trial, r *write) string {
		now, before, _ := both[*v1beta1.Module](r)
		if now != nil || before == nil || before.DeletionTimestamp == nil || r.actor != "module" {
			return ""
		}
		return check(j, before)
	}
}

func departsWhole(j *trial, _ *v1beta1.Module) string {
	for _, m := range j.w.nodes {
		o := j.orderOf(last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name))
		if loads(o) && last[*corev1.Node](j.judge, kindNode, m.name) != nil {
			return fmt.Sprintf("the Module is gone, and %s is ordered %s", m.name, say(o))
		}
	}
	return ""
}

func departsLate(j *trial, module *v1beta1.Module) string {
	if j.w.clock.Since(module.DeletionTimestamp.Time)+j.w.ahead >= v1beta1.DefaultDeletionTimeout {
		return "" // by the operator's clock
	}
	for _, m := range j.w.nodes {
		open := every(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name), func(n *v1beta1.NodeModulesConfig) bool {
			a := j.attemptOf(n)
			return unloads(j.orderOf(n)) && (a == nil || a.State != v1beta1.AttemptAbsent)
		})
		if open && every(seen[*corev1.Node](j.judge, kindNode, m.name), func(n *corev1.Node) bool {
			return n != nil && n.DeletionTimestamp == nil && kubelet.IsReady(n)
		}) {
			return fmt.Sprintf("the Module is gone after %s, and %s has not answered", j.w.clock.Since(module.DeletionTimestamp.Time), m.name)
		}
	}
	return ""
}

func pausedStays(j *trial, module *v1beta1.Module) string {
	known := j.modules()
	if !slices.ContainsFunc(j.w.nodes, func(m *machine) bool {
		return j.orderOf(last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name)) != nil
	}) {
		return "" // nothing is left to touch
	}
	if paused(module) && every(known, func(m *v1beta1.Module) bool { return m == nil || paused(m) }) && known[0] != nil {
		return "the Module is gone, and was paused"
	}
	return ""
}

func waitsEnd(j *trial, m *machine, now, _ *v1beta1.NodeModulesConfig) string {
	a := j.attemptOf(now)
	if a == nil || a.NextRetry == nil {
		return ""
	}
	most := 24 * time.Hour
	if a.Reason == v1beta1.ReasonQuarantined && a.State != v1beta1.AttemptFailed {
		most = 5 * time.Minute
	}
	if wait := a.NextRetry.Sub(m.clock().Now()); wait > most {
		return fmt.Sprintf("%s waits for %s: %s", m.name, wait, j.tried(now))
	}
	return ""
}
