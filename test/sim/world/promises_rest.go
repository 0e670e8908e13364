// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/sim/images"
)

// stillness is a history that has come to rest.
type stillness struct {
	judge  *trial
	module *v1beta1.Module // nil: there is none
	nodes  []stillNode     // those that have a Node object
	// written is what was written in ten rounds, and passes how many passes they took.
	written []string
	passes  int
}

// stillNode is a node at rest.
type stillNode struct {
	m        *machine
	node     *corev1.Node
	config   *v1beta1.NodeModulesConfig
	order    *v1beta1.NodeModuleSpec
	live     string // image; empty: none
	selected bool
}

// still looks at what there is.
func (j *trial) still() *stillness {
	s := &stillness{judge: j, module: j.w.module(j.subject)}
	for _, m := range j.w.nodes {
		n := last[*corev1.Node](j.judge, kindNode, m.name)
		if n == nil {
			continue
		}
		config := last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name)
		s.nodes = append(s.nodes, stillNode{m, n, config, j.orderOf(config), j.live(m), selects(s.module, n)})
	}
	return s
}

// stills are what there is for each Module.
func (j *judge) stills() (all []*stillness) {
	for _, t := range j.all() {
		all = append(all, t.still())
	}
	return all
}

// look asks promises about what there is.
func (j *judge) look(all []*stillness, ask func(*Promise) func(*stillness) string) {
	for _, s := range all {
		s.judge.judged(func(p *Promise) string {
			if look := ask(p); look != nil {
				return look(s)
			}
			return ""
		})
	}
}

// has says whether the node has what the Module says.
func (s *stillness) has(n stillNode) bool { return n.selected && n.live == imageIn(s.module) }

// each has a promise look at each node.
func each(check func(*stillness, stillNode) string) func(*stillness) string {
	return func(s *stillness) string {
		for _, n := range s.nodes {
			if text := check(s, n); text != "" {
				return n.m.name + ": " + text
			}
		}
		return ""
	}
}

// current says whether a node's order is what the Module says.
func (s *stillness) current(n stillNode) bool {
	if !n.selected {
		return n.order == nil
	}
	c := &s.module.Spec.ModuleLoader.Container
	return loads(n.order) && n.order.Config.ContainerImage == imageIn(s.module) && !n.order.Paused &&
		slices.Equal(n.order.Config.InTreeModulesToRemove, c.InTreeModulesToRemove) &&
		slices.Equal(n.order.Config.Modprobe.Parameters, c.Modprobe.Parameters) &&
		(n.order.UnloadPolicy == v1beta1.UnloadOnReboot) == (c.UnloadPolicy == v1beta1.UnloadOnReboot)
}

func (s *stillness) say(n stillNode) string {
	want := "nothing"
	if n.selected {
		c := &s.module.Spec.ModuleLoader.Container
		want = fmt.Sprintf("%s remove=%v parameters=%v policy=%s", images.Short(imageIn(s.module)), c.InTreeModulesToRemove,
			c.Modprobe.Parameters, c.UnloadPolicy)
	}
	return fmt.Sprintf("the Module says %s; ordered %s; live %q; attempt %s", want, say(n.order), images.Short(n.live),
		s.judge.tried(n.config))
}

func ordersAreCurrent(s *stillness, n stillNode) string {
	if n.live == "" && n.selected || s.current(n) || s.halted() {
		return ""
	}
	return s.say(n)
}

// halted says whether a node has failed with what the Module says: then no other one changes
// (docs/guide/upgrades.md, pauseOnFailure).
func (s *stillness) halted() bool {
	return slices.ContainsFunc(s.nodes, func(n stillNode) bool {
		a := s.judge.attemptOf(n.config)
		return n.selected && s.current(n) && a != nil && a.State == v1beta1.AttemptFailed
	})
}

// nothingToLose leaves out first loads that take out the kernel's own modules where a failure halts
// those.
func nothingToLose(s *stillness, n stillNode) string {
	replaces := func() bool { return len(s.module.Spec.ModuleLoader.Container.InTreeModulesToRemove) > 0 }
	if n.live != "" || !n.selected || s.current(n) || replaces() && s.halted() {
		return ""
	}
	return s.say(n)
}

func kernelsFollow(s *stillness, n stillNode) string {
	// What a node had when its Node was deleted is kept: its orders went with it, and none means
	// nothing.
	if a := s.judge.attemptOf(n.config); a != nil && a.Reason == v1beta1.ReasonAlreadyLoadedForeign && !s.judge.loadedByAgent(n.m) {
		return "" // what a person loaded is not touched
	}
	if s.current(n) && n.selected && n.live != imageIn(s.module) ||
		n.order == nil && n.live != "" && s.judge.loadedByAgent(n.m) && !s.judge.wasGone(n.m) {
		return s.say(n)
	}
	return ""
}

// wasGone says whether the Node was deleted at any time.
func (j *judge) wasGone(m *machine) bool {
	return slices.ContainsFunc(j.past[kindNode+"/"+m.name], func(v version) bool { return v.object == nil })
}

func readyLabelIsSo(s *stillness, n stillNode) string {
	if _, has := n.node.Labels[v1beta1.ReadyLabel(namespace, s.judge.name)]; has != s.has(n) && !s.halted() {
		return fmt.Sprintf("the ready label is there: %t; %s", has, s.say(n))
	}
	return ""
}

// staysLabelled leaves out what fails its checks, or came by hand.
func staysLabelled(s *stillness, n stillNode) string {
	if !loads(n.order) || !waitsForBoot(*n.order) || n.live == "" || !s.judge.loadedByAgent(n.m) || !s.judge.usable(n.config, n.node) {
		return ""
	}
	if _, has := n.node.Labels[v1beta1.ReadyLabel(namespace, s.judge.name)]; !has {
		return "the ready label is not there; " + s.say(n)
	}
	return ""
}

// carriedOut says whether a node has what the Module says, by an order that says the same.
func (s *stillness) carriedOut(n stillNode) bool { return s.has(n) && s.current(n) && !s.halted() }

func ordersAreLabelled(s *stillness, n stillNode) string {
	if n.config == nil {
		return ""
	}
	for label, want := range map[string]bool{v1beta1.InUseLabel(namespace, s.judge.name): n.order != nil,
		v1beta1.ConfiguredLabel(namespace, s.judge.name): loads(n.order)} {
		if _, has := n.config.Labels[label]; has != want {
			return fmt.Sprintf("the label %s is there: %t; ordered %s", label, has, say(n.order))
		}
	}
	return ""
}

func versionLabelIsSo(s *stillness, n stillNode) string {
	want := ""
	switch {
	case s.carriedOut(n):
		want = s.module.Spec.ModuleLoader.Container.Version
	case n.live != "":
		return ""
	}
	if got := n.node.Labels[v1beta1.VersionReadyLabel(namespace, s.judge.name)]; got != want {
		return fmt.Sprintf("the label of the version is %q, and should be %q; %s", got, want, s.say(n))
	}
	return ""
}

// parametersAreTold: the kernel modules of histories have no parameters, so that none is in force.
func parametersAreTold(s *stillness, n stillNode) string {
	if !s.carriedOut(n) || len(n.order.Config.Modprobe.Parameters) == 0 {
		return ""
	}
	if a := s.judge.attemptOf(n.config); a == nil || a.Reason != v1beta1.ReasonParametersDiffer {
		return s.say(n)
	}
	return ""
}

// attemptsEnd leaves out that a kernel module goes away again and again, which is told for a while.
func attemptsEnd(s *stillness, n stillNode) string {
	a := s.judge.attemptOf(n.config)
	if a == nil || !s.carriedOut(n) || a.Reason == v1beta1.ReasonDrifted ||
		a.Reason == v1beta1.ReasonParametersDiffer && len(n.order.Config.Modprobe.Parameters) > 0 {
		return ""
	}
	return s.say(n)
}

func problemsEnd(s *stillness, n stillNode) string {
	if !s.carriedOut(n) {
		return ""
	}
	for _, p := range s.module.Status.Problems {
		if p.Part == v1beta1.ProblemDeliveries && p.Node == n.m.name {
			return fmt.Sprintf("the problem %s: %s stays; %s", p.Reason, p.Message, s.say(n))
		}
	}
	return ""
}

func countsAreSo(s *stillness) string {
	if s.module == nil || s.module.Spec.ModuleLoader == nil || s.halted() {
		return ""
	}
	var matching, desired, available int32
	for _, n := range s.nodes {
		matching += number(matches(s.module, n.node))
		desired += number(n.selected)
		available += number(s.has(n))
	}
	want := v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: matching, DesiredNumber: desired, AvailableNumber: available}
	if got := s.module.Status.ModuleLoader; got != want {
		return fmt.Sprintf("the status counts %+v, and so it is: %+v", got, want)
	}
	return ""
}

func number(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

func conditionsAreSo(s *stillness) string {
	if s.module == nil || s.module.Spec.ModuleLoader == nil || s.halted() {
		return ""
	}
	matching, all, covered, plugged := 0, true, true, true
	for _, n := range s.nodes {
		if matches(s.module, n.node) {
			matching++
			all = all && s.has(n)
			plugged = plugged && (!s.asksForPlugin() || s.hasPlugin(n))
			covered = covered && n.selected
		}
	}
	want := map[string]bool{"Ready": all && plugged && matching > 0, "Loaded": all && matching > 0, "KernelsCovered": covered}
	for _, condition := range slices.Sorted(maps.Keys(want)) {
		if matching > 0 && isTrue(s.module, condition) != want[condition] {
			c := meta.FindStatusCondition(s.module.Status.Conditions, condition)
			return fmt.Sprintf("%s is %+v, and should be True: %t", condition, c, want[condition])
		}
	}
	return ""
}

func observedIsCurrent(s *stillness) string {
	if s.module != nil && s.module.Status.ObservedGeneration != s.module.Generation {
		return fmt.Sprintf("observedGeneration is %d, and the generation %d", s.module.Status.ObservedGeneration, s.module.Generation)
	}
	return ""
}

func inTreeComesBack(s *stillness, n stillNode) string {
	if n.order != nil || n.live != "" {
		return ""
	}
	for _, module := range slices.Sorted(maps.Keys(s.judge.kernelOf(n.m.name).Out)) {
		if slices.Contains(images.Own, module) && !s.removedByOther(n, module) {
			return fmt.Sprintf("%s was taken out and did not come back; %s", module, s.say(n))
		}
	}
	return ""
}

// removedByOther says whether another Module has something on a node and may want an in-tree module
// out: no document says whose wish counts then.
func (s *stillness) removedByOther(n stillNode, module string) bool {
	return slices.ContainsFunc(subjects, func(other subject) bool {
		return other != s.judge.subject && (other.live(n.m) != "" || other.orderOf(n.config) != nil)
	}) && s.judge.kernelOf(n.m.name).Named[module]
}

func notInVain(s *stillness) string {
	for _, m := range s.judge.w.nodes {
		left := s.judge.kernelOf(m.name).Left
		for _, module := range slices.Sorted(maps.Keys(left)) {
			if left[module] > 2 {
				return fmt.Sprintf("%s: %s was taken out %d times after the last edit", m.name, module, left[module])
			}
		}
	}
	return ""
}

func noCarriersLeft(s *stillness) string {
	for _, pod := range there[*corev1.Pod](s.judge.judge, kindPod) {
		if strings.HasPrefix(pod.Name, v1beta1.CarrierPrefix) {
			return fmt.Sprintf("%s is still there, on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	return ""
}

// there are all objects of a kind, sorted.
func there[T client.Object](j *judge, kind string) (all []T) {
	for _, at := range slices.Sorted(maps.Keys(j.past)) {
		if past := j.past[at]; strings.HasPrefix(at, kind+"/") && past[len(past)-1].object != nil {
			o, _ := past[len(past)-1].object.(T)
			all = append(all, o)
		}
	}
	return all
}

func deletedGoes(s *stillness) string {
	if s.module != nil && s.module.DeletionTimestamp != nil {
		var text strings.Builder
		for _, n := range s.nodes {
			text.WriteString("; " + n.m.name + ": " + s.say(n))
		}
		return "the Module is still there, hours after its deletion" + text.String()
	}
	return ""
}

func nothingLeft(s *stillness) string {
	if s.module != nil {
		return ""
	}
	for _, n := range s.nodes {
		for label := range ours(n.node.Labels) {
			if strings.Contains(label, "/"+namespace+"."+s.judge.name+".") {
				return fmt.Sprintf("there is no Module, and %s has the label %s", n.m.name, label)
			}
		}
		if n.config != nil && (n.order != nil || len(n.config.Spec.Modules) == 0 && len(n.config.Finalizers) > 0) {
			return fmt.Sprintf("there is no Module, and %s has the order %s and the finalizers %v", n.m.name, say(n.order), n.config.Finalizers)
		}
	}
	return ""
}

func ordersWithoutNodes(s *stillness) string {
	for _, o := range there[*v1beta1.NodeModulesConfig](s.judge.judge, kindOrders) {
		if !slices.ContainsFunc(s.nodes, func(n stillNode) bool { return owns(n.node, o) }) {
			return fmt.Sprintf("the NodeModulesConfig %s belongs to no node: owners %v, finalizers %v", o.Name, o.OwnerReferences, o.Finalizers)
		}
	}
	return ""
}

// owns says whether orders belong to a node. They may belong to an earlier one of its name, too,
// until each Module has ordered something of the new one.
func owns(n *corev1.Node, o *v1beta1.NodeModulesConfig) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == n.UID })
}

func quiet(s *stillness) string {
	if len(s.written) > 0 {
		return strings.Join(s.written, "; ")
	}
	return ""
}

func idle(s *stillness) string {
	if s.passes > 10 {
		return fmt.Sprintf("%d passes of all controllers in ten rounds", s.passes)
	}
	return ""
}
