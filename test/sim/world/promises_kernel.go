// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/test/sim/images"
)

// call is one that an agent has made, and the kernel as it was before.
type call struct {
	judge  *trial
	m      *machine
	kernel *kernelState
	order  *v1beta1.NodeModuleSpec // as the agent was shown it
	*fake.Call
	image string // whose build it was about
}

// kernelState is what a kernel's calls add up to.
type kernelState struct {
	live map[string]bool
	// out are the modules that an agent took out in this boot and that nothing has loaded since.
	out map[string]bool
	// worked are the builds that an agent loaded at any time, with their parameters.
	worked map[string]bool
	// named are the modules that any order, when it was carried out, had removed.
	named map[string]bool
	// kept are the modules that the kernel kept in this boot because they were in use.
	kept map[string]bool
	// struck are the builds that took the node down when they were loaded.
	struck map[string]strike
	// hung are the calls that have not returned or were killed, by module; hurt: there was one, or a
	// load took the node down.
	hung map[string]fake.Call
	hurt bool
	// left counts, by module, how often an agent took it out in this boot, since the history's end.
	left map[string]int
}

func (j *judge) kernelOf(node string) *kernelState {
	if j.kernels[node] == nil {
		j.kernels[node] = &kernelState{live: map[string]bool{}, out: map[string]bool{}, worked: map[string]bool{},
			named: map[string]bool{}, kept: map[string]bool{}, left: map[string]int{},
			struck: map[string]strike{}, hung: map[string]fake.Call{}}
	}
	return j.kernels[node]
}

// strike is a load that took the node down: when, how many times in a row, and until when, by the
// node's clock, it is not tried again.
type strike struct {
	at, until time.Time
	row       int
}

// strikes notes a load that took the node down, at a time by the world's clock and the node's.
// Agents note it cut to the second.
func (k *kernelState) strikes(id string, at, nodes time.Time) {
	nodes = nodes.Truncate(time.Second)
	s := strike{at: at, until: nodes.Add(5 * time.Minute), row: k.struck[id].row + 1}
	if s.row > 1 {
		s.until = nodes.Add(24 * time.Hour)
	}
	k.struck[id], k.hurt = s, true
}

// downIn notes that the power goes while a module is loaded: to the node, the load took it down.
func (j *judge) downIn(m *machine, content []byte) {
	j.kernel(m)
	info, err := kmod.Read(content)
	if err == nil && slices.Contains(images.Names, info.Name) {
		j.kernelOf(m.name).strikes(info.BuildID, j.w.clock.Now(), m.clock().Now())
	}
}

// stepped notes that a node's clock has: what is in its future by then counts as of now
// (internal/agent/fuse, Fuse).
func (j *judge) stepped(m *machine) {
	j.kernel(m)
	k, now := j.kernelOf(m.name), m.clock().Now()
	for id, s := range k.struck {
		wait := 5 * time.Minute
		if s.row > 1 {
			wait = 24 * time.Hour
		}
		if s.until.After(now.Add(wait)) {
			s.until = now.Add(wait)
			k.struck[id] = s
		}
	}
}

// add notes what a call has changed.
func (k *kernelState) add(c *fake.Call, order *v1beta1.NodeModuleSpec, now time.Time) {
	if c.For != "" && order != nil {
		for _, module := range order.Config.InTreeModulesToRemove {
			k.named[module] = true
		}
	}
	if c.Call == "delete_module" && c.Result != "" {
		k.kept[c.Module] = true
	}
	if c.Result == "panic" && c.Call == "finit_module" {
		k.strikes(c.BuildID, now, c.Time)
	}
	if c.Result == "oops" && c.Call == "finit_module" { // its log names the module
		k.struck[c.BuildID] = strike{at: now, until: c.Time.Add(24 * time.Hour), row: 2}
	}
	if c.Result == "oops" || c.Result == "timeout" {
		k.hung[c.Module], k.hurt = *c, true
	}
	if c.Result != "" {
		return
	}
	switch c.Call {
	case "reboot":
		clear(k.live)
		clear(k.out)
		clear(k.kept)
		clear(k.left) // the kernel's own come back with each boot, and have to leave again
		clear(k.hung)
	case "returned":
		was := k.hung[c.Module]
		delete(k.hung, c.Module)
		delete(k.live, c.Module)
		if c.BuildID != "" {
			was.Result = ""
			k.add(&was, order, now)
		}
	case "finit_module", "insmod":
		k.live[c.Module] = true
		delete(k.out, c.Module)
		if c.For != "" && slices.Contains(images.Names, c.Module) {
			k.worked[build(images.OfBuild(c.BuildID), c.Params)] = true
			if s, ok := k.struck[c.BuildID]; ok {
				s.row = 0
				k.struck[c.BuildID] = s
			}
		}
	case "delete_module", "rmmod":
		delete(k.live, c.Module)
		if c.For != "" {
			k.out[c.Module] = true
			k.left[c.Module]++
		}
	}
}

// build names what was loaded, and how.
func build(image string, parameters []string) string {
	return image + " " + strings.Join(slices.Sorted(slices.Values(parameters)), " ")
}

// worked says whether an image has worked on a node, whatever its parameters.
func (k *kernelState) workedEver(image string) bool {
	for b := range k.worked {
		if strings.HasPrefix(b, image+" ") {
			return true
		}
	}
	return false
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
	if c.did("finit_module") && (c.order == nil || c.order.Config.ContainerImage != c.image) && !c.kernel.workedEver(c.image) {
		return fmt.Sprintf("%s loaded %s, which its order does not name (%s) and which never worked there", c.m.name,
			images.Short(c.image), say(c.order))
	}
	return ""
}

func parametersAsOrdered(c *call) string {
	if !c.did("finit_module") || c.order == nil || c.order.Config.ContainerImage != c.image {
		return ""
	}
	if b := build(c.image, c.Params); b != build(c.image, c.order.Config.Modprobe.Parameters) && !c.kernel.worked[b] {
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
	if c.Call.Call != "delete_module" || !slices.Contains(images.Own, c.Module) || c.Result != "" || c.kernel.named[c.Module] ||
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
		if other != c.Module && c.kernel.kept[other] && c.kernel.live[other] && c.m.held(other) {
			return fmt.Sprintf("%s took %s out, and %s is in use", c.m.name, c.Module, other)
		}
	}
	return ""
}

func inTreeLeavesFirst(c *call) string {
	if !c.did("finit_module") || !loads(c.order) || c.order.Config.ContainerImage != c.image ||
		c.kernel.worked[build(c.image, c.Params)] {
		return "" // what worked before may be another order's
	}
	for _, other := range c.order.Config.InTreeModulesToRemove {
		if c.kernel.live[other] {
			return fmt.Sprintf("%s loaded %s while %s was live: %s", c.m.name, images.Short(c.image), other, say(c.order))
		}
	}
	return ""
}

// kernelFits leaves out kernels none of whose own modules is live: nothing shows what fits.
func kernelFits(c *call) string {
	made := images.ReleaseOf(c.BuildID)
	if c.Call.Call == "finit_module" && made != "" && made != c.m.release && (c.kernel.live["stock"] || c.kernel.live["other"]) {
		return fmt.Sprintf("%s asked the kernel %s for %s, which is made for %s", c.m.name, c.m.release, images.Short(c.image), made)
	}
	return ""
}

func noLoadAfterStrike(c *call) string {
	s, ok := c.kernel.struck[c.BuildID]
	again := c.order != nil && c.order.Retry != nil && !c.order.Retry.Time.Before(s.at.Truncate(time.Second))
	if ok && !again && c.Call.Call == "finit_module" && c.Time.Before(s.until) {
		return fmt.Sprintf("%s loaded %s, which took it down %d times in a row, last %s ago", c.m.name, images.Short(c.image), s.row,
			c.judge.w.clock.Since(s.at))
	}
	return ""
}

func hungIsLeft(c *call) string {
	if was, hung := c.kernel.hung[c.Module]; hung {
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
