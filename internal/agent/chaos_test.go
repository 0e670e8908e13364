// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/kmod/synth"
)

var (
	chaosEvents = flag.Int("chaos.events", 1500, "how many random events TestChaos makes")
	chaosSeed   = flag.Uint64("chaos.seed", 1, "seed of TestChaos")
	chaosBreak  = flag.String("chaos.break", "", `fault to put into the audit's subject: "unload" makes somebody unload in the agent's name`)
)

// chaos is one node, what is wanted of it, and what has gone wrong.
type chaos struct {
	*rig
	random *rand.Rand
	// want are the orders, by name; a nil one is missing from the object.
	want map[string]*v1beta1.NodeModuleSpec
	// builds that were delivered, by delivery.
	builds map[string]synth.Module
	// live is what was last loaded under a name: build and parameters.
	live map[string]string
	// worked is what an order last was when it was seen fulfilled, and what it loaded since: that may serve again.
	worked map[string][]string
	killer *killer
	seen   int // calls that were audited
	counts map[string]int
	next   int
	faults struct{ unasked, wrong, stuck int }
}

// killer is a kernel under which the agent, or the whole node, can end at any call.
type killer struct {
	*fake.Host
	left  int // calls until the end; below zero: none
	crash bool
}

type death struct{}

func (k *killer) call(do func() error) error {
	if k.left == 0 && k.crash {
		k.end()
	}
	err := do()
	if k.left == 0 {
		k.end()
	}
	k.left--
	return err
}

func (k *killer) end() {
	k.left = -1
	if k.crash {
		k.Reboot("")
	}
	panic(death{})
}

func (k *killer) Load(ctx context.Context, r host.LoadRequest) error {
	return k.call(func() error { return k.Host.Load(ctx, r) })
}

func (k *killer) Unload(ctx context.Context, r host.UnloadRequest) error {
	return k.call(func() error { return k.Host.Unload(ctx, r) })
}

func (k *killer) Modprobe(ctx context.Context, r host.ModprobeRequest) error {
	return k.call(func() error { return k.Host.Modprobe(ctx, r) })
}

var chaosNames = []string{"alpha", "beta", "gamma"}

func newChaos(t *testing.T, seed uint64) *chaos {
	stock := synth.Module{Name: "stock"}
	c := &chaos{
		rig:    newRig(t, fake.Options{Tree: hostTreeOf(stock, synth.Module{Name: "extra"})}),
		random: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // a test's dice
		want:   map[string]*v1beta1.NodeModuleSpec{}, builds: map[string]synth.Module{}, live: map[string]string{}, worked: map[string][]string{}, counts: map[string]int{},
	}
	c.killer = &killer{Host: c.host, left: -1}
	c.begin()
	for _, name := range chaosNames {
		c.build(name)
	}
	return c
}

// begin starts a new agent.
func (c *chaos) begin() {
	c.restart(c.killer)
	dir := filepath.Join(c.dir, "fuse")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	f, err := fuse.Open(dir, false)
	if err != nil {
		c.t.Fatal(err)
	}
	if old := c.agent.o.Fuse; old != nil {
		_ = old.Close()
	}
	c.agent.o.Fuse = f
}

// build delivers a new build and orders it.
func (c *chaos) build(name string) {
	c.next++
	m := synth.Module{Name: name, Version: fmt.Sprint(c.next), SoftdepPre: []string{"extra"}}
	id := fmt.Sprintf("d%d", c.next)
	modules := []synth.Module{m}
	if name == "beta" {
		modules[0].Depends = []string{"core"}
		modules = append(modules, synth.Module{Name: "core"})
	}
	c.builds[id] = modules[0]
	o := order(name, c.deliver(id, modules...))
	if name == "gamma" {
		o.Config.InTreeModulesToRemove = []string{"stock"}
	}
	c.want[name] = &o
}

func (c *chaos) some(names ...string) string { return names[c.random.IntN(len(names))] }

// events are what can happen, by name.
func (c *chaos) events() map[string]func() {
	any := slices.Concat(chaosNames, []string{"core", "stock", "extra"})
	ordered := func(do func(o *v1beta1.NodeModuleSpec)) {
		if o := c.want[c.some(chaosNames...)]; o != nil {
			do(o)
		}
	}
	return map[string]func(){
		"new build": func() { c.build(c.some(chaosNames...)) },
		"parameters": func() {
			ordered(func(o *v1beta1.NodeModuleSpec) { o.Config.Modprobe.Parameters = []string{"a=" + fmt.Sprint(c.next)} })
		},
		"modprobe": func() {
			ordered(func(o *v1beta1.NodeModuleSpec) {
				o.Config.Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{c.some("-v", "-b")}}
				if c.random.IntN(2) == 0 {
					o.Config.Modprobe.Args = nil
				}
			})
		},
		"deleted":    func() { ordered(absent) },
		"back":       func() { ordered(func(o *v1beta1.NodeModuleSpec) { o.State, o.Reason = "", "" }) },
		"entry lost": func() { c.want[c.some(chaosNames...)] = nil },
		"object lost": func() {
			c.last = &v1beta1.NodeModulesConfigStatus{}
		},
		"agent killed": func() { c.killer.left, c.killer.crash = c.random.IntN(4), false },
		"agent restarted": func() {
			c.stopAgent()
			c.begin()
		},
		"power cut": func() { c.host.Reboot(""); c.begin() },
		"reboot":    func() { c.stopAgent(); c.host.Reboot(""); c.begin() },
		"crash at a call": func() {
			if c.random.IntN(20) == 0 {
				c.killer.left, c.killer.crash = c.random.IntN(2), true
			}
		},
		"rmmod":  func() { _ = c.host.Rmmod(c.some(any...)) },
		"insmod": func() { _ = c.host.Insmod(ko(synth.Module{Name: c.some(any...), Version: "stranger"})) },
		"load fails": func() {
			c.host.Script("finit_module", c.some(any...), fake.Fault{Errno: c.some("ENODEV", "EINVAL", "ENOMEM"), Times: 1 + c.random.IntN(3)})
		},
		"busy": func() {
			c.host.Script("delete_module", c.some(any...), fake.Fault{Errno: "EAGAIN", Times: 1 + c.random.IntN(3)})
		},
		"held":   func() { _ = c.host.Hold(c.some(any...)) },
		"let go": func() { _ = c.host.Unhold(c.some(any...)) },
		"mended": func() { c.host.Mend() },
		"journal gone": func() {
			_ = os.Remove(filepath.Join(c.dir, "state", journalFile))
			c.begin()
		},
	}
}

func (c *chaos) stopAgent() {
	if err := c.agent.stop(); err != nil {
		c.t.Fatal(err)
	}
}

// orders is the object as it stands.
func (c *chaos) orders() []v1beta1.NodeModuleSpec {
	var all []v1beta1.NodeModuleSpec
	for _, name := range chaosNames {
		if o := c.want[name]; o != nil {
			all = append(all, *o.DeepCopy())
		}
	}
	return all
}

// look is one round of the agent; it may not survive it.
func (c *chaos) look() {
	defer c.audit()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case death:
			c.begin()
		default:
			panic(r)
		}
	}()
	ctx := klog.NewContext(c.t.Context(), klog.Logger{})
	p, err := c.agent.newPass(v1beta1.NodeModulesConfigSpec{Modules: c.orders()})
	if err == nil {
		err = p.restore(c.last)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := p.settle(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	c.last = statusOf(p.bootID, out, p.needed(), c.last, c.clock.Now())
	c.audit()
	c.truthful(out)
}

// truthful checks that what is reported live is so.
func (c *chaos) truthful(out map[key]outcome) {
	for k, o := range out {
		if o.live && c.want[k.Name] != nil && c.live[k.Name] == c.wanted(c.want[k.Name]) {
			c.worked[k.Name] = []string{c.live[k.Name]}
		}
		if o.live && c.host.Live()[k.Name] == "" {
			c.faults.wrong++
			c.t.Errorf("%s is reported live and is not", k)
		}
	}
}

// audit judges the calls since the last time.
func (c *chaos) audit() {
	calls := c.host.Calls()
	inserted := map[string]bool{}
	for _, call := range calls[c.seen:] {
		name, of := call.Module, strings.TrimPrefix(call.For, "ns/")
		what := call.BuildID + " " + strings.Join(call.Params, " ")
		switch {
		case call.Call == "reboot":
			clear(c.live)
		case call.Result != "":
		case call.Call == "insmod":
			c.live[name] = what
		case call.Call == "rmmod":
			delete(c.live, name)
		case call.Call == "finit_module":
			if !c.mayLoad(of, call) {
				c.faults.wrong++
				c.t.Errorf("event %d: loaded %s %s for %s, which wants %+v", c.counts["events"], name, what, of, c.want[of])
			}
			c.live[name], inserted[name] = what, true
			if name == of {
				c.worked[of] = append(c.worked[of], what)
			}
		case call.Call == "delete_module":
			if !inserted[name] && !c.mayUnload(of, name) {
				c.faults.unasked++
				c.t.Errorf("event %d: unloaded %s (%s) for %s, which wants %+v", c.counts["events"], name, c.live[name], of, c.want[of])
			}
			delete(c.live, name)
		}
	}
	c.seen = len(calls)
}

// wanted is what an order wants live under its own name.
func (c *chaos) wanted(o *v1beta1.NodeModuleSpec) string {
	m := c.builds[o.Delivery.ID]
	return buildID(c.t, m) + " " + strings.Join(o.Config.Modprobe.Parameters, " ")
}

func (c *chaos) mayLoad(of string, call fake.Call) bool {
	o := c.want[of]
	switch call.Module {
	case "stock": // put back when the order goes, or when its load fails
		return of == "gamma"
	case "core", "extra":
		return o != nil && o.State != v1beta1.NodeModuleAbsent
	}
	what := call.BuildID + " " + strings.Join(call.Params, " ")
	return o != nil && o.State != v1beta1.NodeModuleAbsent && call.Module == of && (what == c.wanted(o) || slices.Contains(c.worked[of], what))
}

func (c *chaos) mayUnload(of, name string) bool {
	o := c.want[of]
	switch {
	case o == nil:
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
	c.killer.left = -1
	c.host.Mend()
	for name := range c.host.Live() {
		for c.held(name) {
			_ = c.host.Unhold(name)
		}
	}
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
		default:
			c.faults.stuck++
			c.t.Errorf("event %d: %s is stuck: live %q; wanted %+v; %s", c.counts["events"], name, live, o, c.why(name))
		}
	}
}

func (c *chaos) held(name string) bool {
	m, ok, err := c.host.Module(name)
	return err == nil && ok && m.RefCount > len(m.Holders)
}

// evict removes a stranger's module if it is still that one.
func (c *chaos) evict(name, buildID string) {
	if c.host.Live()[name] == buildID {
		_ = c.host.Rmmod(name)
	}
}

func (c *chaos) why(name string) string {
	for _, a := range c.last.Attempts {
		if a.Name == name {
			return fmt.Sprintf("%s %s: %s", a.State, a.Reason, a.Message)
		}
	}
	return "no attempt"
}

// TestChaos makes random things happen and audits every call to the kernel: `make chaos-node` does so 10,000 times.
func TestChaos(t *testing.T) {
	c := newChaos(t, *chaosSeed)
	events := c.events()
	names := slices.Sorted(maps.Keys(events))
	for i := range *chaosEvents {
		c.counts["events"] = i + 1
		name := names[c.random.IntN(len(names))]
		c.counts[name]++
		events[name]()
		for range c.random.IntN(3) {
			c.clock.Step(time.Duration(c.random.IntN(90)) * time.Second)
			c.look()
		}
		if *chaosBreak == "unload" && i == *chaosEvents/2 {
			c.breakIt()
		}
		if (i+1)%250 == 0 {
			c.settle()
		}
		if t.Failed() && *chaosBreak == "" {
			break
		}
	}
	c.settle()
	c.report(*chaosSeed, names)
}

// breakIt unloads something in the agent's name.
func (c *chaos) breakIt() {
	c.build("alpha")
	c.settle()
	for name := range c.host.Live() {
		if o := c.want[name]; o != nil && c.live[name] == c.wanted(o) {
			err := c.host.Unload(c.t.Context(), host.UnloadRequest{Name: name, For: "ns/" + name})
			if err == nil {
				c.audit()
				return
			}
		}
	}
}

func (c *chaos) report(seed uint64, names []string) {
	for _, name := range names {
		if c.counts[name] == 0 && *chaosEvents > 1000 {
			c.t.Error(errors.New("nothing of this kind happened: " + name))
		}
	}
	result := map[string]any{
		"events": c.counts["events"], "seed": seed, "unaskedUnloads": c.faults.unasked, "wrongBuildLoaded": c.faults.wrong, "stuck": c.faults.stuck,
		"calls": len(c.host.Calls()), "boots": c.host.Boots(),
	}
	delete(c.counts, "events")
	result["faults"] = c.counts
	line, err := json.Marshal(result)
	if err != nil {
		c.t.Fatal(err)
	}
	fmt.Printf("RESULT %s\n", line)
}
