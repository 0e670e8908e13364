// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Promise is what must hold in every history.
type Promise struct {
	// Name is what a violation is counted by.
	Name string
	// Text is what is promised, and Source the document that promises it.
	Text, Source string
	// Known says why the promise is not kept yet; empty: it is.
	Known string

	// One of these looks, and returns what is wrong; empty: nothing.
	call func(*call) string // before each kernel call of an agent
	// of a kind, after each write.
	of    string
	write func(*trial, *write) string
	pass  func(*trial) string     // after a pass of the Module that others left alone
	waits func(*stillness) string // before nodes are booted that wait for it
	rest  func(*stillness) string // when a history has come to rest
	lit   func(*lit) string       // when the power is back
	back  func(*lit) string       // and the agent has looked
}

// Known says whether a promise is known not to be kept yet.
func Known(name string) bool {
	i := slices.IndexFunc(Promises, func(p Promise) bool { return p.Name == name })
	return i >= 0 && Promises[i].Known != ""
}

const (
	sourceAgent   = "docs/design/0002-node-agent.md"
	sourceOrders  = "docs/design/0003-orders-and-deliveries.md"
	sourceWrong   = "docs/design/0004-loads-that-go-wrong.md"
	sourceLeaving = "docs/design/0009-departure.md"
	sourceRollout = "docs/design/0013-rollout.md"
	sourceUpgrade = "docs/guide/upgrades.md"
	sourceLose    = "docs/design/0047-something-to-lose.md"
	sourceModule  = "docs/guide/module.md"
	sourceLabels  = "docs/reference/labels.md"
	sourceReasons = "docs/reference/reasons.md"
	sourceNMC     = "api/kmm/v1beta1/nodemodulesconfig_types.go"
	sourceAPI     = "api/kmm/v1beta1/module_types.go"
)

// Promises are all that histories are judged by. The first that is broken names a violation.
var Promises = slices.Concat(kernelPromises, orderPromises, departurePromises, reportPromises, otherPromises,
	revertPromises, pluginPromises, powerPromises, restPromises)

// kernelPromises are about each call that an agent makes.
var kernelPromises = []Promise{
	{Name: "no-unasked-unload", Text: "Without an order, an agent takes nothing out.", Source: sourceAgent + ", Reasons",
		call: noUnaskedUnload},
	{Name: "no-load-against-order", Text: "A node that is told to unload loads nothing.", Source: sourceOrders + ", 1",
		call: noLoadAgainstOrder},
	{Name: "no-stranger", Text: "An agent loads what its order names, or what worked on the node before.",
		Source: sourceWrong + ", The previous build serves", call: noStranger},
	{Name: "parameters", Text: "What is loaded gets its order's parameters, or those that worked.", Source: sourceAPI + ", parameters",
		call: parametersAsOrdered},
	{Name: "pause-touches-nothing", Text: "A paused order makes no kernel call.", Source: sourceWrong + ", Decision",
		call: pauseTouchesNothing},
	{Name: "on-reboot-keeps", Text: "With OnReboot, nothing is unloaded before a boot.", Source: sourceNMC + ", UnloadOnReboot",
		call: onRebootKeeps},
	{Name: "only-named-leave", Text: "Of the kernel's own modules, those leave that an order names.",
		Source: sourceAPI + ", inTreeModulesToRemove",
		call:   onlyNamedLeave},
	{Name: "all-or-none-leave", Text: "If one of the in-tree modules is in use, none leaves, once the kernel has shown the agent.",
		Source: sourceModule + "; " + sourceAgent, call: allOrNoneLeave},
	{Name: "in-tree-leaves-first", Text: "In-tree modules to remove are out before the module is loaded.",
		Source: sourceAPI + ", inTreeModulesToRemove", call: inTreeLeavesFirst},
	{Name: "kernel-fits", Text: "No kernel is asked for a build that another kernel's is certain to be.", Source: sourceWrong + ", Certain",
		call: kernelFits},
	{Name: "no-load-after-strike", Text: "A load that took the node down waits for five minutes, and after two in a row for a day.",
		Source: sourceWrong + ", Decision", call: noLoadAfterStrike},
	{Name: "image-before-unload", Text: "A node has the image before it unloads anything for it.", Source: sourceUpgrade,
		call: imageBeforeUnload},
}

// orderPromises are about each write of a NodeModulesConfig, and of carriers.
var orderPromises = []Promise{
	{Name: "orders-one-writer", Text: "The operator writes orders, the node's agent the status.", Source: sourceNMC + ", NodeModulesConfig",
		of: kindOrders, write: ordersHaveOneWriter},
	{Name: "no-outdated-order", Text: "No node is told to load a build that the Module no longer names and that worked nowhere.",
		Source: sourceRollout + ", 4", of: kindOrders, write: ordered(noOutdatedOrder)},
	{Name: "max-unavailable", Text: "No more nodes change at the same time than maxUnavailable.",
		Source: sourceUpgrade,
		of:     kindOrders, write: ordered(maxUnavailable)},
	{Name: "first-alone", Text: "The first node with a build changes alone.",
		Source: sourceUpgrade + "; " + sourceRollout + ", 4",
		of:     kindOrders, write: ordered(firstAlone)},
	{Name: "failure-halts", Text: "While a node has failed with a change, no other begins it.",
		Source: sourceUpgrade + ", pauseOnFailure",
		of:     kindOrders, write: ordered(failureHalts)},
	{Name: "not-ready-counts", Text: "Nodes that are not Ready count as unavailable when another is to change, or to unload.",
		Source: sourceUpgrade + "; " + sourceRollout + ", 3 and 7; docs/guide/autoscaling.md, 4",
		of:     kindOrders, write: ordered(notReadyCounts)},
	{Name: "quarantine-spreads", Text: "While a node reports a strike, no other gets an order for that delivery.",
		Source: sourceWrong + ", On other nodes", of: kindOrders, write: ordered(quarantineSpreads)},
	{Name: "taints-keep-off", Text: "A node with a taint that the Module does not tolerate gets no first load.",
		Source: sourceAPI + ", tolerations; " + sourceModule, of: kindOrders, write: ordered(taintsKeepOff)},
	{Name: "paused-rollout", Text: "While the rollout is paused, no change begins.", Source: sourceUpgrade + ", paused",
		of: kindOrders, write: ordered(pausedRolloutBeginsNothing)},
	{Name: "paused-first-load", Text: "While the rollout is paused, a node without an order gets none, but for what others still serve.",
		Source: sourceUpgrade + "; " + sourceLose + ", 3", of: kindOrders, write: ordered(pausedFirstLoad)},
	{Name: "first-load-turn", Text: "First loads that take in-tree modules out count against maxUnavailable, with nodes that change.",
		Source: sourceUpgrade + "; " + sourceLose + ", 2", of: kindOrders, write: ordered(firstLoadTurn)},
	{Name: "pause-keeps-orders", Text: "A pause changes nothing else in an order, and writes no new one.", Source: sourceOrders + ", 8",
		of: kindOrders, write: ordered(pauseKeepsOrders)},
	{Name: "no-unasked-absent", Text: "A node that the Module selects, and that no taint asks for it, is not told to unload.",
		Source: sourceOrders + ", 1; " + sourceUpgrade + ", Taints that ask for an unload",
		of:     kindOrders, write: ordered(noUnaskedAbsent)},
	{Name: "grace", Text: "A node that is no longer selected keeps what it has for five minutes.",
		Source: sourceUpgrade + "; " + sourceOrders + ", 7",
		of:     kindOrders, write: ordered(graceIsKept)},
	{Name: "mass-deselection", Text: "If more nodes are deselected than may be unavailable, none unloads until that is confirmed.",
		Source: sourceUpgrade + ", Labels that come and go", of: kindOrders, write: ordered(massWaits)},
	{Name: "absent-says-why", Text: "An order to unload has a reason in CamelCase.", Source: sourceNMC + ", reason",
		of: kindOrders, write: ordered(absentSaysWhy)},
	{Name: "orders-leave-answered", Text: "An order goes only as one to unload that the agent has answered.", Source: sourceOrders + ", 4",
		of: kindOrders, write: ordered(ordersLeaveAnswered)},
	{Name: "absent-is-held", Text: "A finalizer keeps the object of an order to unload.", Source: sourceOrders + ", 4",
		of: kindOrders, write: ordered(absentIsHeld)},
	{Name: "orders-have-nodes", Text: "A first order belongs to a Node that exists.", Source: sourceLeaving + ", 2",
		of: kindOrders, write: ordered(ordersHaveNodes)},
	{Name: "module-is-held", Text: "A Module that has a node told to load has its finalizer.", Source: sourceLabels + ", Finalizers",
		of: kindOrders, write: ordered(moduleIsHeld)},
	{Name: "orders-complete", Text: "An order to load names the node's kernel, the kernel module and a delivery.",
		Source: sourceNMC + ", config, delivery",
		of:     kindOrders, write: ordered(ordersAreComplete)},
	{Name: "carriers-asked", Text: "Carriers bring images that the Module or an order names.", Source: sourceOrders + ", 3",
		of: kindPod, write: carried(carriersAreAsked)},
	{Name: "carriers-needed", Text: "A node that has a delivery gets no carrier of it.", Source: sourceOrders + ", 3",
		of: kindPod, write: carried(carriersAreNeeded)},
	{Name: "evicts-once", Text: "A pod is evicted once for one report of its holding: another of its name is not meant.",
		Source: sourceRollout + ", 10; docs/guide/draining.md", of: kindPod, write: evictsOnce},
	{Name: "carriers-have-nodes", Text: "Carriers are made for nodes that exist.", Source: sourceOrders + ", 6",
		of: kindPod, write: carried(carriersHaveNodes)},
}

// departurePromises are about a Module that goes.
var departurePromises = []Promise{
	{Name: "departs-whole", Text: "A Module goes when every node is told to unload, and not before.", Source: sourceLeaving + ", 1",
		of: kindModule, write: went(departsWhole)},
	{Name: "departs-late", Text: "Before deletionTimeout, a Module waits for every node that lives.", Source: sourceLeaving + ", 1",
		of: kindModule, write: went(departsLate)},
	{Name: "paused-stays", Text: "A paused Module does not go while nodes have orders.", Source: sourceLeaving + ", 5", of: kindModule,
		write: went(pausedStays)},
}

// reportPromises are about what is told: by agents, by labels, by the Module's status.
var reportPromises = []Promise{
	{Name: "live-is-so", Text: "An agent says that a build is live while it is, in this boot.", Source: sourceNMC + ", status.modules",
		of: kindOrders, write: reported(liveIsSo)},
	{Name: "absent-is-so", Text: "An answered unload means that the kernel module is out.", Source: sourceNMC + ", AttemptAbsent",
		of: kindOrders, write: reported(absentIsSo)},
	{Name: "open-orders-told", Text: "An order that is not carried out has an attempt.", Source: sourceNMC + ", status.attempts",
		of: kindOrders, write: reported(openOrdersAreTold)},
	{Name: "attempts-name-causes", Text: "An attempt has a reason and a message.", Source: sourceNMC + ", NodeModuleAttempt",
		of: kindOrders, write: reported(attemptsNameCauses)},
	{Name: "attempt-reasons", Text: "Reasons of attempts are of the closed set.", Source: sourceReasons, of: kindOrders,
		write: reported(attemptReasons)},
	{Name: "attempt-times", Text: "An attempt's lastTransitionTime is when its state or reason changed, and goes back only with a clock.",
		Source: sourceNMC + ", lastTransitionTime", of: kindOrders, write: reported(attemptTimes)},
	{Name: "artifacts-are-held", Text: "What an agent says that the node holds is in its store.", Source: sourceNMC + ", status.artifacts",
		of: kindOrders, write: reported(artifactsAreHeld)},
	{Name: "labels-one-writer", Text: "Drover's labels are written by its controller of labels.", Source: sourceLabels, of: kindNode,
		write: labelsHaveOneWriter},
	{Name: "ready-label-earned", Text: "A node gets the ready label when what its agent says is live in this boot is ordered, or stays.",
		Source: sourceLabels + "; " + sourceLose + ", 4", of: kindNode, write: readyIsEarned},
	{Name: "what-stays-is-labelled", Text: "What is live keeps the ready label while its order waits for the next boot.",
		Source: sourceUpgrade + "; " + sourceLose + ", 4", of: kindNode, write: labelIsKept, waits: each(staysLabelled)},
	{Name: "status-one-writer", Text: "One controller writes the Module's status, and each its problems.",
		Source: "docs/design/0029-problems-through-the-api.md", of: kindModule, write: statusHasOneWriter},
	{Name: "observed-not-ahead", Text: "observedGeneration is never ahead, and never goes back.", Source: sourceAPI + ", observedGeneration",
		of: kindModule, write: told(observedNotAhead)},
	{Name: "condition-reasons", Text: "Reasons of conditions and problems are of the closed set.", Source: sourceReasons,
		of: kindModule, write: told(conditionReasons)},
	{Name: "conditions-name-causes", Text: "A condition that is not True has a message.", Source: sourceReasons,
		of: kindModule, write: told(conditionsNameCauses)},
	{Name: "condition-times", Text: "A condition's lastTransitionTime changes with its status, and goes back only with a clock.",
		Source: "k8s.io/apimachinery, metav1.Condition", of: kindModule, write: told(conditionTimes)},
	{Name: "ready-is-all", Text: "Ready is True when all other conditions are.", Source: sourceLabels + ", Conditions",
		of: kindModule, write: told(readyIsAll)},
	{Name: "stalled-is-final", Text: "Stalled stands beside a Ready that is not True, with its final reason and its message.",
		Source: sourceReasons,
		of:     kindModule, write: told(stalledIsFinal)},
	{Name: "counts-earned", Text: "No more nodes count as available than say that they have it.", Source: sourceAPI + ", availableNumber",
		of: kindModule, write: told(countsAreEarned)},
	{Name: "loaded-earned", Text: "Loaded becomes True when every selected node says that it has the kernel module.",
		Source: sourceLabels + ", Conditions", of: kindModule, write: told(loadedIsEarned)},
}

// restPromises are about what there is when all faults have ended and hours have gone by.
var restPromises = []Promise{
	{Name: "deleted-goes", Text: "A deleted Module goes.", Source: sourceUpgrade + ", Deletion", rest: deletedGoes},
	{Name: "orders-current", Text: "Orders are what the Module says.", Source: sourceUpgrade, rest: each(ordersAreCurrent)},
	{Name: "nothing-to-lose", Text: "A node with nothing live is ordered what the Module says, unless a failure halts what replaces modules.",
		Source: sourceRollout + ", 2",
		rest:   each(nothingToLose)},
	{Name: "kernels-follow", Text: "What is live is what is ordered.", Source: sourceUpgrade, rest: each(kernelsFollow)},
	{Name: "ready-label", Text: "The ready label is where the Module's build is live, and nowhere else.", Source: sourceLabels,
		rest: each(readyLabelIsSo)},
	{Name: "counts", Text: "The status counts the nodes that match, should have it, and have it.", Source: sourceAPI + ", DaemonSetStatus",
		rest: countsAreSo},
	{Name: "conditions", Text: "Ready, Loaded and KernelsCovered are True where it is so, and only there.",
		Source: sourceLabels + ", Conditions",
		rest:   conditionsAreSo},
	{Name: "observed-current", Text: "The status is about the Module's last generation.", Source: sourceAPI + ", observedGeneration",
		rest: observedIsCurrent},
	{Name: "taints-unload", Text: "A node with a taint that asks for an unload is told to, and has nothing live.",
		Source: sourceUpgrade + ", Taints that ask for an unload", rest: taintsUnload},
	{Name: "in-tree-comes-back", Text: "In-tree modules come back when the Module's is unloaded.", Source: sourceModule,
		rest: each(inTreeComesBack)},
	{Name: "not-in-vain", Text: "After the last edit, no driver is taken out again and again.",
		Source: sourceWrong + ", The previous build serves",
		rest:   notInVain},
	{Name: "no-carriers-left", Text: "Carriers end when their content is imported.",
		Source: "docs/design/glossary.md, carrier; " + sourceAgent,
		rest:   noCarriersLeft},
	{Name: "nothing-left", Text: "A deleted Module leaves no label, order or finalizer.", Source: sourceLabels + ", Finalizers",
		rest: nothingLeft},
	{Name: "orders-labelled", Text: "Labels say which Modules a node has orders of, and which it is to load.",
		Source: "api/kmm/v1beta1/labels.go, ConfiguredLabel and InUseLabel", rest: each(ordersAreLabelled)},
	{Name: "version-label", Text: "A label says which version is live, where the Module has one.", Source: sourceLabels,
		rest: each(versionLabelIsSo)},
	{Name: "node-condition", Text: "A node's condition says whether every Module that belongs there is ready.",
		Source: "docs/guide/ready.md, A condition of the node", rest: each(nodeConditionIsSo)},
	{Name: "parameters-told", Text: "Parameters that are not in force on a node are told.",
		Source: sourceModule + "; " + sourceReasons + ", ParametersDiffer", rest: each(parametersAreTold)},
	{Name: "attempts-end", Text: "Of an order that is carried out, nothing is said but that parameters differ.",
		Source: sourceNMC + ", status.attempts", rest: each(attemptsEnd)},
	{Name: "problems-end", Text: "A problem of a delivery goes when the node holds the image.",
		Source: "docs/design/0029-problems-through-the-api.md", rest: each(problemsEnd)},
	{Name: "no-orders-without-nodes", Text: "A deleted node's NodeModulesConfig goes with it.", Source: sourceLeaving + ", 2",
		rest: ordersWithoutNodes},
	{Name: "quiet", Text: "In ten rounds at rest, nothing is written.", Source: sourceOrders + ", 5", rest: quiet},
	{Name: "idle", Text: "At rest, passes do not follow one another.", Source: "docs/design/0040-rest.md", rest: idle},
}

// otherPromises are about what others have to do with a Module: other Modules that share its nodes,
// and ModulePolicies, of which that they unload nothing is promised with the orders.
var otherPromises = []Promise{
	{Name: "calls-apart", Text: "What an agent does for one Module leaves the kernel module of another alone.",
		Source: sourceOrders + ", 1", call: callsApart},
	{Name: "entries-apart", Text: "A Module's pass changes no order but its own.", Source: sourceOrders + ", 2", of: kindOrders,
		write: entriesApart},
	{Name: "entries-owned", Text: "Each order that is applied belongs to one field owner, which names its Module.",
		Source: sourceOrders + ", 2", of: kindOrders, write: ordered(entriesAreOwned)},
	{Name: "absent-stays-held", Text: "While an order to unload stands, what is done for others leaves its finalizer.",
		Source: sourceOrders + ", 4", of: kindOrders, write: absentStaysHeld},
	{Name: "policy-denies", Text: "No node gets an order that is new to it and that an enforced ModulePolicy does not allow.",
		Source: "docs/guide/policy.md, What is denied, and what is not", of: kindOrders, write: ordered(policyDenies)},
}

func entriesApart(j *trial, r *write) string {
	now, before, _ := both[*v1beta1.NodeModulesConfig](r)
	if before != nil && before.DeletionTimestamp != nil {
		return "" // it is a replaced node's, and goes with all orders when the last finalizer does
	}
	if r.actor == "module" && j.request != "" && j.request != j.key() && !reflect.DeepEqual(j.orderOf(now), j.orderOf(before)) {
		return fmt.Sprintf("a pass of %s made the order of %s %s of %s", j.request, r.key, say(j.orderOf(now)), say(j.orderOf(before)))
	}
	return ""
}

// moduleIsHeld looks at first orders: a finalizer may be taken off by hand later.
func moduleIsHeld(j *trial, o order) string {
	if o.was != nil || !loads(o.now) || !every(j.modules(), func(m *v1beta1.Module) bool {
		return m != nil && !slices.Contains(m.Finalizers, v1beta1.ModuleFinalizer)
	}) {
		return ""
	}
	return fmt.Sprintf("%s is ordered %s, and the Module has no finalizer", o.m.name, say(o.now))
}

// confirmed says whether a person has confirmed that many nodes lose the Module at once.
func confirmed(m *v1beta1.Module) bool {
	return m.Annotations[v1beta1.ConfirmDeselectionAnnotation] != ""
}

func massWaits(j *trial, o order) string {
	if !unloads(o.now) || unloads(o.was) || j.leaves() || slices.ContainsFunc(j.modules(), confirmed) {
		return ""
	}
	var mass []string
	for _, m := range j.w.nodes {
		deselected := every(seen[*corev1.Node](j.judge, kindNode, m.name), func(n *corev1.Node) bool {
			return n != nil && every(j.modules(), func(module *v1beta1.Module) bool { return !selects(module, n) })
		})
		known := seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name)
		if m == o.m {
			known = known[:len(known)-1] // before it was told
		}
		if deselected && j.live(m) != "" && every(known, j.serves(m.name)) {
			mass = append(mass, m.name)
		}
	}
	if most := j.most(); most > 0 && len(mass) > most && slices.Contains(mass, o.m.name) {
		return fmt.Sprintf("%s is told to unload (%s), %v are deselected, and maxUnavailable is %d", o.m.name, o.now.Reason, mass, most)
	}
	return ""
}

func entriesAreOwned(j *trial, o order) string {
	entry := fmt.Sprintf(`"k:{\"name\":\"%s\",\"namespace\":\"%s\"}"`, j.name, namespace)
	var owners []string
	for _, f := range o.config.ManagedFields {
		if f.Subresource == "" && f.FieldsV1 != nil && strings.Contains(string(f.FieldsV1.Raw), entry) {
			owners = append(owners, f.Manager)
		}
	}
	if want := "drover/" + j.key(); o.now != nil && !slices.Equal(owners, []string{want}) {
		return fmt.Sprintf("the order of %s belongs to %q", o.m.name, owners)
	}
	return ""
}

func absentStaysHeld(j *trial, r *write) string {
	now, before, _ := both[*v1beta1.NodeModulesConfig](r)
	if now == nil || before == nil || r.actor != "module" || !unloads(j.orderOf(now)) ||
		!reflect.DeepEqual(j.orderOf(now), j.orderOf(before)) || last[*corev1.Node](j.judge, kindNode, r.key) == nil {
		return ""
	}
	if slices.Contains(before.Finalizers, orderFinalizer) && !slices.Contains(now.Finalizers, orderFinalizer) {
		return fmt.Sprintf("a pass of %s took the finalizer of %s, which is ordered %s", j.request, r.key, say(j.orderOf(now)))
	}
	return ""
}

// pausedFirstLoad leaves out what a boot into another kernel took away, and claims of what is live.
func pausedFirstLoad(j *trial, o order) string {
	known := seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, o.m.name)
	if o.was != nil || !loads(o.now) || j.live(o.m) == o.now.Config.ContainerImage ||
		!every(j.modules(), func(m *v1beta1.Module) bool { return m != nil && m.Spec.Rollout.Paused }) ||
		slices.ContainsFunc(known[:len(known)-1], func(n *v1beta1.NodeModulesConfig) bool { return j.orderOf(n) != nil || j.has(n, o.now) }) {
		return ""
	}
	for _, other := range j.w.nodes {
		if other != o.m && slices.ContainsFunc(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, other.name),
			func(n *v1beta1.NodeModulesConfig) bool { return j.has(n, o.now) }) {
			return ""
		}
	}
	return fmt.Sprintf("%s gets its first order, %s, while the rollout is paused", o.m.name, say(o.now))
}

// firstLoadTurn leaves out what others still serve while a rollout is halted: it is not what the
// Module says.
func firstLoadTurn(j *trial, o order) string {
	asked := loads(o.now) && slices.ContainsFunc(j.modules(),
		func(m *v1beta1.Module) bool { return imageIn(m) == o.now.Config.ContainerImage })
	told := slices.ContainsFunc(seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, o.m.name),
		func(n *v1beta1.NodeModulesConfig) bool { return j.liveIn(n) != nil })
	if o.was != nil || !asked || told || !j.firstLoads(o.m) {
		return ""
	}
	var all []string
	for _, other := range j.w.nodes {
		n := last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, other.name)
		there := every(seen[*corev1.Node](j.judge, kindNode, other.name), func(n *corev1.Node) bool { return n != nil })
		if there && (j.firstLoads(other) || j.changes(other, j.orderOf(n)) && !j.stays(n)) {
			all = append(all, other.name)
		}
	}
	if most := j.most(); most > 0 && len(all) > most {
		return fmt.Sprintf("%v load for the first time, or change, at the same time, and maxUnavailable is %d", all, most)
	}
	return ""
}

func labelIsKept(j *trial, r *write) string {
	now, before, _ := both[*corev1.Node](r)
	label := v1beta1.ReadyLabel(namespace, j.name)
	if now == nil || before == nil || r.actor != "node" || now.UID != before.UID {
		return ""
	}
	_, has := now.Labels[label]
	_, had := before.Labels[label]
	stays := func(n *v1beta1.NodeModulesConfig) bool {
		o := j.orderOf(n)
		return loads(o) && o.State != v1beta1.NodeModuleDraining && waitsForBoot(*o) &&
			every(seen[*corev1.Node](j.judge, kindNode, r.key), func(node *corev1.Node) bool { return j.usable(n, node) })
	}
	if n := seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, r.key); had && !has && every(n, stays) {
		return fmt.Sprintf("%s loses the ready label; it is ordered %s, and says %+v", r.key, say(j.orderOf(n[0])), j.liveIn(n[0]))
	}
	return ""
}
