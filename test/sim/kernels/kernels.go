// SPDX-License-Identifier: Apache-2.0

// Package kernels adds up what agents' calls have made of a node's kernel.
package kernels

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/test/sim/images"
)

// State is what a kernel's calls add up to.
type State struct {
	// Live are the modules in it.
	Live map[string]bool
	// Out are the modules that an agent took out in this boot and that nothing has loaded since.
	Out map[string]bool
	// Worked are the builds that an agent loaded at any time, with their parameters.
	Worked map[string]bool
	// Named are the modules that any order, when it was carried out, had removed.
	Named map[string]bool
	// Kept are the modules that the kernel kept in this boot because they were in use.
	Kept map[string]bool
	// Struck are the builds that took the node down when they were loaded.
	Struck map[string]Strike
	// Hung are the calls that have not returned or were killed, by module; Hurt: there was one, or a
	// load took the node down.
	Hung map[string]fake.Call
	Hurt bool
	// Left counts, by module, how often an agent took it out in this boot, since the history's end.
	Left map[string]int
}

// New is the state of a kernel that has not been called.
func New() *State {
	return &State{Live: map[string]bool{}, Out: map[string]bool{}, Worked: map[string]bool{}, Named: map[string]bool{},
		Kept: map[string]bool{}, Struck: map[string]Strike{}, Hung: map[string]fake.Call{}, Left: map[string]int{}}
}

// Strike is a load that took the node down: when, how many times in a row, until when, by the
// node's clock, it is not tried again, and which retry the agent had heard of by then.
type Strike struct {
	At, Until time.Time
	Row       int
	Heard     *metav1.Time
}

// Strikes notes a load that took the node down, at a time by the world's clock and the node's.
// Agents note it cut to the second.
func (k *State) Strikes(id string, order *v1beta1.NodeModuleSpec, at, nodes time.Time) {
	nodes = nodes.Truncate(time.Second)
	s := Strike{At: at, Until: nodes.Add(5 * time.Minute), Row: k.Struck[id].Row + 1, Heard: RetryOf(order)}
	if s.Row > 1 {
		s.Until = nodes.Add(24 * time.Hour)
	}
	k.Struck[id], k.Hurt = s, true
}

// Stepped notes that the node's clock has, and what it says: what is in its future by then counts
// as of now (internal/agent/fuse, Fuse).
func (k *State) Stepped(now time.Time) {
	for id, s := range k.Struck {
		wait := 5 * time.Minute
		if s.Row > 1 {
			wait = 24 * time.Hour
		}
		if s.Until.After(now.Add(wait)) {
			s.Until = now.Add(wait)
			k.Struck[id] = s
		}
	}
}

// Add notes what a call has changed.
func (k *State) Add(c *fake.Call, order *v1beta1.NodeModuleSpec, now time.Time) {
	if c.For != "" && order != nil {
		for _, module := range order.Config.InTreeModulesToRemove {
			k.Named[module] = true
		}
	}
	if c.Call == "delete_module" && c.Result != "" {
		k.Kept[c.Module] = true
	}
	if c.Result == "panic" && c.Call == "finit_module" {
		k.Strikes(c.BuildID, order, now, c.Time)
	}
	if c.Result == "oops" && c.Call == "finit_module" { // its log names the module
		k.Struck[c.BuildID] = Strike{now, c.Time.Add(24 * time.Hour), 2, RetryOf(order)}
	}
	if c.Result == "oops" || c.Result == "timeout" {
		k.Hung[c.Module], k.Hurt = *c, true
	}
	if c.Result != "" {
		return
	}
	switch c.Call {
	case "reboot":
		clear(k.Live)
		clear(k.Out)
		clear(k.Kept)
		clear(k.Left) // the kernel's own come back with each boot, and have to leave again
		clear(k.Hung)
	case "returned":
		was := k.Hung[c.Module]
		delete(k.Hung, c.Module)
		delete(k.Live, c.Module)
		if c.BuildID != "" {
			was.Result = ""
			k.Add(&was, order, now)
		}
	case "finit_module", "insmod":
		k.Live[c.Module] = true
		delete(k.Out, c.Module)
		if c.For != "" && slices.Contains(images.Names, c.Module) {
			k.Worked[Build(images.OfBuild(c.BuildID), c.Params)] = true
			if s, ok := k.Struck[c.BuildID]; ok {
				s.Row = 0
				k.Struck[c.BuildID] = s
			}
		}
	case "delete_module", "rmmod":
		delete(k.Live, c.Module)
		if c.For != "" {
			k.Out[c.Module] = true
			k.Left[c.Module]++
		}
	}
}

// Build names what was loaded, and how.
func Build(image string, parameters []string) string {
	return image + " " + strings.Join(slices.Sorted(slices.Values(parameters)), " ")
}

// WorkedEver says whether an image has worked on a node, whatever its parameters.
func (k *State) WorkedEver(image string) bool {
	for b := range k.Worked {
		if strings.HasPrefix(b, image+" ") {
			return true
		}
	}
	return false
}

// RetryOf is the retry that an order asks for; nil: none.
func RetryOf(order *v1beta1.NodeModuleSpec) *metav1.Time {
	if order == nil {
		return nil
	}
	return order.Retry
}
