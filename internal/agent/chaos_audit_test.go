// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/orders"
)

// audit judges the calls since the last time.
func (c *chaos) audit() {
	calls := c.host.Calls()
	inserted := map[string]bool{}
	if last := c.agent.memory.Retried.Last; !maps.Equal(c.retried, last) { // a retry was asked for, and now it is carried out
		c.retried = maps.Clone(last)
		clear(c.refusals)
	}
	for _, call := range calls[c.seen:] {
		switch call.Call {
		case "reboot":
			clear(c.live)
			clear(c.coming)
			clear(c.refusals)
			c.enforced = c.willEnforce
		case "insmod":
			if call.Result == "" {
				c.live[call.Module] = call.BuildID + " "
			}
		case "rmmod":
			if call.Result == "" {
				delete(c.live, call.Module)
			}
		case "returned":
			c.returned(call)
		case "finit_module":
			inserted[call.Module] = c.loading(call)
		case "delete_module":
			c.unloading(call, inserted[call.Module])
		}
	}
	c.seen = len(calls)
}

// loading judges a load; it tells whether the module is in the kernel.
func (c *chaos) loading(call fake.Call) bool {
	name, of := call.Module, strings.TrimPrefix(call.For, "ns/")
	what := call.BuildID + " " + strings.Join(call.Params, " ")
	if call.Result == "EKEYREJECTED" {
		limit := 1
		if name == "core" || c.workedOtherwise(of) { // the previous order's load is another, of the same build ID
			limit = 2
		}
		k := name + " " + call.BuildID + " " + of + " " + c.wayOf(of)
		if c.refusals[k]++; c.refusals[k] > limit {
			c.faults.again++
			c.t.Errorf("event %d: %s (%s) for %s was tried again after its signature was rejected", c.counts["events"], name, what, of)
		}
	}
	began := call.Result == "" || call.Result == "timeout" || call.Result == "oops" || call.Result == "panic"
	if began && !c.mayLoad(of, call) {
		c.faults.wrong++
		c.t.Errorf("event %d: loaded %s %s for %s, which wants %+v", c.counts["events"], name, what, of, c.acting[of])
	}
	if began && name == of {
		c.worked[of] = append(c.worked[of], what)
	}
	switch call.Result {
	case "":
		c.live[name] = what
	case "timeout":
		if c.coming[name] == "" { // else it is the second that waits for the first
			c.coming[name] = what
		}
	}
	return call.Result == ""
}

// unloading judges an unload. What has just been loaded may go again, when the rest of the load
// fails.
func (c *chaos) unloading(call fake.Call, inserted bool) {
	name, of := call.Module, strings.TrimPrefix(call.For, "ns/")
	if call.Result != "" && call.Result != "timeout" && call.Result != "oops" && call.Result != "panic" {
		return
	}
	if !inserted && !c.mayUnload(of, name) {
		c.faults.unasked++
		c.t.Errorf("event %d: unloaded %s (%s) for %s, which wants %+v", c.counts["events"], name, c.live[name], of, c.acting[of])
	}
	if call.Result == "" {
		delete(c.live, name)
	}
}

// returned: a call that had been left behind has ended.
func (c *chaos) returned(call fake.Call) {
	switch {
	case call.BuildID == "":
		delete(c.live, call.Module)
	case c.coming[call.Module] != "":
		c.live[call.Module] = c.coming[call.Module]
	}
	delete(c.coming, call.Module)
}

// workedOtherwise tells whether an order last worked with the same delivery.
func (c *chaos) workedOtherwise(of string) bool {
	w, o := c.agent.memory.Journal.Worked[orders.Key{Namespace: "ns", Name: of}], c.acting[of]
	return w != nil && o != nil && w.DeliveryID == o.Delivery.ID
}

// wayOf tells apart loads of one build that the agent tries apart: of another delivery, or by
// another command line of modprobe.
func (c *chaos) wayOf(name string) string {
	o := c.acting[name]
	if o == nil {
		return ""
	}
	if o.Config.Modprobe.Args == nil {
		return o.Delivery.ID
	}
	return fmt.Sprint(o.Delivery.ID, o.Config.Modprobe.Args, o.Config.Modprobe.Parameters)
}

// wanted is what an order wants live under its own name.
func (c *chaos) wanted(o *v1beta1.NodeModuleSpec) string {
	return c.builds[o.Delivery.ID].id + " " + strings.Join(o.Config.Modprobe.Parameters, " ")
}

func (c *chaos) mayLoad(of string, call fake.Call) bool {
	o := c.acting[of]
	if call.Module == "stock" { // put back when the order goes, or when its load fails
		return of == "gamma"
	}
	if o == nil || o.State == v1beta1.NodeModuleAbsent || o.Paused {
		return false
	}
	switch call.Module {
	case "core", "extra":
		return true
	}
	what := call.BuildID + " " + strings.Join(call.Params, " ")
	return call.Module == of && (what == c.wanted(o) || slices.Contains(c.worked[of], what))
}

func (c *chaos) mayUnload(of, name string) bool {
	o := c.acting[of]
	switch {
	case o == nil, o.Paused:
		return false
	case o.State == v1beta1.NodeModuleAbsent:
		return name != "stock"
	case name == "stock":
		return of == "gamma"
	case name == of:
		return c.live[name] != c.wanted(o)
	}
	// A dependency goes for a reload of what uses it.
	return c.live[of] == "" || c.live[of] != c.wanted(o)
}

// settle takes every obstacle away and checks that the node becomes what is wanted.
func (c *chaos) settle() {
	c.clear()
	for range 12 {
		for _, call := range c.host.Calls() { // what strangers have put in their way
			if call.Call == "insmod" {
				c.evict(call.Module, call.BuildID)
			}
		}
		c.clock.Step(25 * time.Hour)
		c.look()
	}
	for _, name := range chaosNames {
		o, live := c.want[name], c.live[name]
		switch {
		case o == nil:
		case o.State == v1beta1.NodeModuleAbsent && live == "", o.State != v1beta1.NodeModuleAbsent && live == c.wanted(o):
		case o.State != v1beta1.NodeModuleAbsent && c.enforced && !c.builds[o.Delivery.ID].trusted &&
			strings.Contains(c.why(name), "SignatureRejected"):
		default:
			c.faults.stuck++
			c.t.Errorf("event %d: %s is stuck: live %q; wanted %+v; %s", c.counts["events"], name, live, o, c.why(name))
		}
	}
}

// clear takes away what keeps orders from being carried out: on the server, from the node, and by a
// boot where nothing else helps.
func (c *chaos) clear() {
	c.killer.left = -1
	c.host.Mend()
	c.server.away, c.server.undefined, c.server.forgotten = time.Time{}, time.Time{}, time.Time{}
	for name, gone := range c.away {
		c.away[name] = span{gone.since, c.clock.Now()}
	}
	for _, o := range c.want {
		if o != nil {
			o.Paused = false
		}
	}
	c.clock.Step(time.Hour) // calls that will return have returned
	states, err := c.host.Modules()
	if err != nil {
		c.t.Fatal(err)
	}
	wedged := false
	for name, state := range states {
		wedged = wedged || state != host.StateLive
		for c.held(name) {
			_ = c.host.Unhold(name)
		}
	}
	for _, name := range append([]string{"core", "stock", "extra"}, chaosNames...) {
		c.host.Plug(name)
	}
	if wedged {
		c.stopAgent()
		c.boot(func() { c.host.Reboot("") })
	}
}

func (c *chaos) held(name string) bool {
	m, ok, err := c.host.Module(name)
	return err == nil && ok && m.State == host.StateLive && m.RefCount > len(m.Holders)
}

// evict removes a stranger's module if it is still that one.
func (c *chaos) evict(name, buildID string) {
	if c.host.Live()[name] == buildID {
		_ = c.host.Rmmod(name)
	}
}

func (c *chaos) why(name string) string {
	if c.server.object == nil {
		return "no object"
	}
	for _, a := range c.server.object.Status.Attempts {
		if a.Name == name {
			return fmt.Sprintf("%s %s: %s", a.State, a.Reason, a.Message)
		}
	}
	return "no attempt"
}
