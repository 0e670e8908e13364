// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
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
	// left counts, by module, how often an agent took it out since the history's end.
	left map[string]int
}

func (j *judge) kernelOf(node string) *kernelState {
	if j.kernels[node] == nil {
		j.kernels[node] = &kernelState{live: map[string]bool{}, out: map[string]bool{}, worked: map[string]bool{},
			named: map[string]bool{}, kept: map[string]bool{}, left: map[string]int{}}
	}
	return j.kernels[node]
}

// add notes what a call has changed.
func (k *kernelState) add(c *fake.Call, order *v1beta1.NodeModuleSpec) {
	if c.For != "" && order != nil {
		for _, module := range order.Config.InTreeModulesToRemove {
			k.named[module] = true
		}
	}
	if c.Call == "delete_module" && c.Result != "" {
		k.kept[c.Module] = true
	}
	if c.Result != "" {
		return
	}
	switch c.Call {
	case "reboot":
		clear(k.live)
		clear(k.out)
		clear(k.kept)
	case "finit_module", "insmod":
		k.live[c.Module] = true
		delete(k.out, c.Module)
		if c.For != "" && slices.Contains(images.Names, c.Module) {
			k.worked[build(images.OfBuild(c.BuildID), c.Params)] = true
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
