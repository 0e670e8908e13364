// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/test/sim/images"
	"github.com/drover-project/drover/test/sim/kernels"
	"github.com/drover-project/drover/test/sim/kubelet"
	"github.com/drover-project/drover/test/sim/policies"
	"github.com/drover-project/drover/test/sim/taints"
)

// call is one that an agent has made, and the kernel as it was before.
type call struct {
	judge  *trial
	m      *machine
	kernel *kernels.State
	order  *v1beta1.NodeModuleSpec // as the agent was shown it
	*fake.Call
	image string // whose build it was about
}

func (j *judge) kernelOf(node string) *kernels.State {
	if j.kernels[node] == nil {
		j.kernels[node] = kernels.New()
	}
	return j.kernels[node]
}

// downIn notes that the power goes while a module is loaded: to the node, the load took it down.
func (j *judge) downIn(m *machine, content []byte) {
	j.kernel(m)
	info, err := kmod.Read(content)
	for _, t := range j.all() {
		if err == nil && t.name == info.Name {
			j.kernelOf(m.name).Strikes(info.BuildID, t.orderOf(m.shown), j.w.clock.Now(), m.clock().Now())
		}
	}
}

// did says whether the call succeeded and was a load, or an unload, of the Module's kernel module.
func (c *call) did(what string) bool {
	return c.Call.Call == what && c.Module == c.judge.name && c.Result == ""
}

// live is the image whose build is in the kernel; empty: none of the module's name is.
func (s subject) live(m *machine) string {
	id, ok := m.kernel.Live()[s.name]
	if !ok {
		return ""
	}
	if image := images.OfBuild(id); image != "" {
		return image
	}
	return "stranger:" + id
}

// loadedByAgent says whether what is live came by the agent, not by hand.
func (s subject) loadedByAgent(m *machine) bool {
	calls := m.kernel.Calls()
	for i := len(calls) - 1; i >= 0; i-- {
		c := calls[i]
		if c.Module == s.name && c.Result == "" && (c.Call == "finit_module" || c.Call == "insmod" || c.Call == "returned") {
			return c.Call != "insmod"
		}
	}
	return false
}

func noUnaskedUnload(c *call) string {
	if c.order == nil && c.Call.Call == "delete_module" && c.Result == "" {
		return fmt.Sprintf("%s took %s out without an order", c.m.name, c.Module)
	}
	return ""
}

func noLoadAgainstOrder(c *call) string {
	if unloads(c.order) && c.did("finit_module") {
		return fmt.Sprintf("%s loaded %s, and is ordered %s", c.m.name, images.Short(c.image), say(c.order))
	}
	return ""
}

func noStranger(c *call) string {
	if c.did("finit_module") && (c.order == nil || c.order.Config.ContainerImage != c.image) && !c.kernel.WorkedEver(c.image) {
		return fmt.Sprintf("%s loaded %s, which its order does not name (%s) and which never worked there", c.m.name,
			images.Short(c.image), say(c.order))
	}
	return ""
}

func parametersAsOrdered(c *call) string {
	if !c.did("finit_module") || c.order == nil || c.order.Config.ContainerImage != c.image {
		return ""
	}
	if b := kernels.Build(c.image, c.Params); b != kernels.Build(c.image, c.order.Config.Modprobe.Parameters) && !c.kernel.Worked[b] {
		return fmt.Sprintf("%s loaded %s with %v, and is ordered %s", c.m.name, images.Short(c.image), c.Params, say(c.order))
	}
	return ""
}

func pauseTouchesNothing(c *call) string {
	if c.order != nil && c.order.Paused {
		return fmt.Sprintf("%s called %s for %s while its order was paused: %s", c.m.name, c.Call.Call, c.Module, say(c.order))
	}
	return ""
}

func onRebootKeeps(c *call) string {
	if c.order != nil && c.order.UnloadPolicy == v1beta1.UnloadOnReboot && c.did("delete_module") {
		return fmt.Sprintf("%s unloaded %s, and is ordered %s", c.m.name, images.Short(c.image), say(c.order))
	}
	return ""
}

func onlyNamedLeave(c *call) string {
	if c.Call.Call != "delete_module" || !slices.Contains(images.Own, c.Module) || c.Result != "" || c.kernel.Named[c.Module] ||
		c.order != nil && slices.Contains(c.order.Config.InTreeModulesToRemove, c.Module) {
		return ""
	}
	return fmt.Sprintf("%s took %s out, which no order named: %s", c.m.name, c.Module, say(c.order))
}

// allOrNoneLeave leaves out the first time: who uses the modules of histories, no kernel shows.
func allOrNoneLeave(c *call) string {
	if c.Call.Call != "delete_module" || !slices.Contains(images.Own, c.Module) || c.Result != "" || c.order == nil {
		return ""
	}
	for _, other := range c.order.Config.InTreeModulesToRemove {
		if other != c.Module && c.kernel.Kept[other] && c.kernel.Live[other] && c.m.held(other) {
			return fmt.Sprintf("%s took %s out, and %s is in use", c.m.name, c.Module, other)
		}
	}
	return ""
}

func inTreeLeavesFirst(c *call) string {
	if !c.did("finit_module") || !loads(c.order) || c.order.Config.ContainerImage != c.image ||
		c.kernel.Worked[kernels.Build(c.image, c.Params)] {
		return "" // what worked before may be another order's
	}
	for _, other := range c.order.Config.InTreeModulesToRemove {
		if c.kernel.Live[other] {
			return fmt.Sprintf("%s loaded %s while %s was live: %s", c.m.name, images.Short(c.image), other, say(c.order))
		}
	}
	return ""
}

func callsApart(c *call) string {
	if c.Module != c.judge.name && slices.Contains(images.Names, c.Module) {
		return fmt.Sprintf("%s called %s for %s, and its order is %s", c.m.name, c.Call.Call, c.Module, say(c.order))
	}
	return ""
}

// kernelFits leaves out kernels none of whose own modules is live: nothing shows what fits.
func kernelFits(c *call) string {
	made := images.ReleaseOf(c.BuildID)
	if c.Call.Call == "finit_module" && made != "" && made != c.m.release && (c.kernel.Live["stock"] || c.kernel.Live["other"]) {
		return fmt.Sprintf("%s asked the kernel %s for %s, which is made for %s", c.m.name, c.m.release, images.Short(c.image), made)
	}
	return ""
}

// noLoadAfterStrike goes by what the agent has heard: a clock may be an hour off.
func noLoadAfterStrike(c *call) string {
	s, ok := c.kernel.Struck[c.BuildID]
	asked := kernels.RetryOf(c.order)
	again := asked != nil && !asked.Equal(s.Heard)
	if ok && !again && c.Call.Call == "finit_module" && c.Time.Before(s.Until) {
		return fmt.Sprintf("%s loaded %s, which took it down %d times in a row, last %s ago", c.m.name, images.Short(c.image), s.Row,
			c.judge.w.clock.Since(s.At))
	}
	return ""
}

func hungIsLeft(c *call) string {
	if was, hung := c.kernel.Hung[c.Module]; hung {
		return fmt.Sprintf("%s called %s for %s, whose %s has not returned (%s)", c.m.name, c.Call.Call, c.Module, was.Call, was.Result)
	}
	return ""
}

func imageBeforeUnload(c *call) string {
	if c.Call.Call != "delete_module" || c.Module != c.judge.name || !loads(c.order) || c.order.Config.ContainerImage == c.image ||
		c.order.Delivery == nil {
		return ""
	}
	held, err := c.m.store.Held()
	must(err)
	if _, has := held[c.order.Delivery.ID]; !has {
		return fmt.Sprintf("%s unloaded %s and does not have what its order names: %s", c.m.name, images.Short(c.image), say(c.order))
	}
	return ""
}

func wholeLoads(c *call) string {
	if c.m.broken != "" && c.Call.Call == "finit_module" {
		return fmt.Sprintf("%s asked its kernel for %s", c.m.name, c.m.broken)
	}
	return ""
}

func artifactsAreHeld(j *trial, m *machine, now, _ *v1beta1.NodeModulesConfig) string {
	held, err := m.store.Held()
	must(err)
	for _, a := range now.Status.Artifacts {
		if j.subject == nic && held[a.ID] != a.Digest {
			return fmt.Sprintf("%s says that it holds %s, and it holds %v", m.name, a.ID, held)
		}
	}
	return ""
}

// nodeConditionIsSo leaves out nodes where it is not plain whether a Module is ready.
func nodeConditionIsSo(s *stillness, n stillNode) string {
	want, plain := s.readiness(n)
	for _, t := range s.judge.all() {
		if t.subject == s.judge.subject {
			continue
		}
		other := t.still()
		for _, at := range other.nodes {
			if at.m == n.m {
				status, is := other.readiness(at)
				plain = plain && is
				want = worse(want, status)
			}
		}
	}
	got := corev1.ConditionStatus("")
	for _, c := range n.node.Status.Conditions {
		if c.Type == v1beta1.NodeConditionKernelModules {
			got = c.Status
		}
	}
	if plain && got != want {
		return fmt.Sprintf("the node's condition is %q, and should be %q; %s", got, want, s.say(n))
	}
	return ""
}

// readiness is what a Module alone would make a node's condition; false: it is not plain. Empty: it
// does not belong on the node.
func (s *stillness) readiness(n stillNode) (status corev1.ConditionStatus, plain bool) {
	switch {
	case !matches(s.module, n.node) || s.module.DeletionTimestamp != nil:
		return "", true
	case s.carriedOut(n):
		return corev1.ConditionTrue, true
	}
	return corev1.ConditionFalse, n.live == ""
}

// worse is the condition of a node where two Modules would make it these.
func worse(a, b corev1.ConditionStatus) corev1.ConditionStatus {
	return min(cmp.Or(a, b), cmp.Or(b, a)) // False is before True
}

// evictsOnce looks at pods of people that the operator evicts.
func evictsOnce(j *trial, r *write) string {
	now, before, _ := both[*corev1.Pod](r)
	if !kubelet.IsUser(before) || before.DeletionTimestamp != nil || now != nil && now.DeletionTimestamp == nil ||
		!slices.Contains(j.w.op.Controllers(), r.actor) {
		return ""
	}
	if slices.ContainsFunc(j.past[kindOrders+"/"+before.Spec.NodeName], func(v version) bool {
		n, _ := v.object.(*v1beta1.NodeModulesConfig)
		a := j.attemptOf(n)
		return a != nil && slices.Contains(a.HolderUIDs, string(before.UID))
	}) {
		return ""
	}
	return fmt.Sprintf("%s evicts %s (%s), which no agent has named", r.actor, before.Name, before.UID)
}

// revertPromises are about edits that are reverted, and about a limit that Modules share.
var revertPromises = []Promise{
	{Name: "what-is-asked-for-stays", Text: "A node with what the Module asks for is not left with an order that would take it out.",
		Source: sourceUpgrade + ", Pause and retry; " + sourceRollout + ", 2", pass: askedForStays},
	{Name: "shared-limit", Text: "No more nodes change at the same time, for all Modules together, than the operator's limit.",
		Source: sourceUpgrade + ", Several Modules on the same nodes; docs/design/0048-node-budget.md", of: kindOrders, write: sharedLimit},
}

// askedForStays looks at orders that the pass knew, and left as they are.
func askedForStays(j *trial) string {
	for _, m := range j.w.nodes {
		node, known := seen[*corev1.Node](j.judge, kindNode, m.name)[0], seen[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name)[0]
		o := j.orderOf(known)
		if o == nil || say(o) != say(j.orderOf(last[*v1beta1.NodeModulesConfig](j.judge, kindOrders, m.name))) ||
			!j.hasAsked(j.modules()[0], node, known) || loads(o) && j.has(known, o) {
			continue
		}
		return fmt.Sprintf("%s has %s, which the Module asks for, and the pass leaves its order, %s", m.name, images.Short(j.live(m)), say(o))
	}
	return ""
}

// hasAsked says whether a node says that its agent has loaded what the Module asks for, and nothing
// keeps that from being ordered: no pause of the Module, no ModulePolicy, no quarantine.
func (j *trial) hasAsked(module *v1beta1.Module, node *corev1.Node, config *v1beta1.NodeModulesConfig) bool {
	live := j.liveIn(config)
	if node == nil || !selects(module, node) || paused(module) || !j.usable(config, node) || live.Config == nil || live.Observed == nil ||
		live.Observed.Delivery == "" || live.Config.KernelVersion != node.Status.NodeInfo.KernelVersion {
		return false
	}
	asked := module.Spec.ModuleLoader.Container
	asks := v1beta1.ModuleConfig{ContainerImage: imageIn(module), Modprobe: asked.Modprobe, InTreeModulesToRemove: asked.InTreeModulesToRemove}
	denied := slices.ContainsFunc(there[*v1alpha1.ModulePolicy](j.judge, kindPolicy), func(p *v1alpha1.ModulePolicy) bool {
		return !policies.Permits(&p.Spec, live.Config)
	})
	struck := slices.ContainsFunc(there[*v1beta1.NodeModulesConfig](j.judge, kindOrders), func(n *v1beta1.NodeModulesConfig) bool {
		a := j.attemptOf(n)
		return a != nil && a.Strike != nil && a.Strike.Delivery == live.Observed.Delivery
	})
	return policies.Same(live.Config, &asks) && !denied && !struck
}

// sharedLimit looks at orders that take out what is live where nothing else was under way. What
// goes on after a pause had its turn, and what comes back without its orders has none.
func sharedLimit(j *trial, r *write) string {
	now, before, _ := both[*v1beta1.NodeModulesConfig](r)
	l, m := &j.w.limits, j.w.machineOf(r.key)
	o := order{m, j.orderOf(now), j.orderOf(before), now}
	if m == nil || l.Nodes == 0 {
		return ""
	}
	anew := r.actor == "module" && say(o.now) != say(o.was)
	if j.over(now) || anew && j.live(m) == "" {
		l.Ends(m.name, j.name, j.w.Now())
	}
	if !anew || !j.turns(o) && !j.gives(o) {
		return ""
	}
	resumes := loads(o.was) && o.was.Paused && o.was.Config.ContainerImage == o.now.Config.ContainerImage
	free := !resumes && !j.wasGone(m) && every(seen[*corev1.Node](j.judge, kindNode, m.name), kubelet.IsReady)
	var all []string
	for _, t := range j.all() {
		free = free && !l.Visited(m.name, t.name, j.w.Now()) && (!t.changes(m, t.orderOf(before)) || t.over(before)) &&
			(l.Knows(t.name) || every(t.modules(), func(m *v1beta1.Module) bool { return m == nil }))
	}
	l.Begins(m.name, j.name, j.w.Now())
	for _, other := range j.w.nodes {
		away := func(n *corev1.Node) bool { return n != nil && !kubelet.IsReady(n) }
		if other != m && (every(seen[*corev1.Node](j.judge, kindNode, other.name), away) || slices.ContainsFunc(j.all(), other.underWay)) {
			all = append(all, other.name)
		}
	}
	if !free || len(all) < l.Nodes {
		return ""
	}
	return fmt.Sprintf("%s is ordered %s while %v change or are not Ready, and %d may", m.name, say(o.now), all, l.Nodes)
}

// underWay says whether the Module's change takes out what is there, whatever the operator knew.
func (m *machine) underWay(t *trial) bool {
	all := seen[*v1beta1.NodeModulesConfig](t.judge, kindOrders, m.name)
	o := t.orderOf(all[len(all)-1])
	over := func(n *v1beta1.NodeModulesConfig) bool { return say(t.orderOf(n)) == say(o) && t.over(n) }
	if o == nil || t.wasGone(m) || slices.ContainsFunc(all, over) || !t.w.limits.Under(m.name, t.name, t.changes(m, o), t.w.Now()) {
		return false
	}
	return every(seen[*corev1.Node](t.judge, kindNode, m.name), func(n *corev1.Node) bool {
		return n != nil && n.Status.NodeInfo.KernelVersion == o.Config.KernelVersion && !taints.AskForUnload(n) &&
			every(t.modules(), func(module *v1beta1.Module) bool {
				if module == nil || module.DeletionTimestamp != nil || paused(module) || module.Spec.ModuleLoader == nil {
					return false
				}
				return loads(o) == selects(module, n) && module.Spec.ModuleLoader.Container.UnloadPolicy != v1beta1.UnloadOnReboot &&
					(unloads(o) || imageIn(module) != t.live(m))
			})
	})
}

// over says whether a node has carried out its order, or failed, or keeps what it has.
func (j *trial) over(n *v1beta1.NodeModulesConfig) bool {
	o, a := j.orderOf(n), j.attemptOf(n)
	return o == nil || j.stays(n) || a != nil && (a.Strike != nil || a.State == v1beta1.AttemptAbsent) || loads(o) && j.has(n, o)
}

func absent(a v1beta1.NodeModuleAttempt) bool { return a.State == v1beta1.AttemptAbsent }

// imageOf is the image that an order loads, if it loads any.
func imageOf(o *v1beta1.NodeModuleSpec) string {
	if !loads(o) {
		return ""
	}
	return o.Config.ContainerImage
}
