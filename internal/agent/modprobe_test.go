// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// args are arguments for modprobe around the module's name.
func args(load, unload []string) func(*v1beta1.NodeModuleSpec) {
	return func(s *v1beta1.NodeModuleSpec) {
		s.Config.Modprobe.Args = &v1beta1.ModprobeArgs{Load: load, Unload: unload}
	}
}

// raw are whole command lines.
func raw(load, unload []string) func(*v1beta1.NodeModuleSpec) {
	return func(s *v1beta1.NodeModuleSpec) {
		s.Config.Modprobe.ModuleName = ""
		s.Config.Modprobe.RawArgs = &v1beta1.ModprobeArgs{Load: load, Unload: unload}
	}
}

// probes writes down what modprobe was called with; before is called first.
type probes struct {
	*fake.Host
	lines  [][]string
	before func()
	broken error
	alias  map[string]string
	// running: a call that was left behind has not ended.
	running bool
}

func (p *probes) ModprobeRunning() bool { return p.running }

func (p *probes) Modprobe(ctx context.Context, r host.ModprobeRequest) error {
	p.lines = append(p.lines, r.Args)
	if p.before != nil {
		p.before()
	}
	if p.broken != nil {
		return p.broken
	}
	r.Args = slices.Clone(r.Args)
	for i, arg := range r.Args {
		r.Args[i] = cmp.Or(p.alias[arg], arg)
	}
	return p.Host.Modprobe(ctx, r)
}

func (r *rig) probes() *probes {
	p := &probes{Host: r.host}
	r.restart(p)
	return p
}

var (
	stacked  = synth.Module{Name: "gadget", Depends: []string{"bus_core"}, Params: []kmod.Param{{Name: "size", Type: "int"}}}
	busCore  = synth.Module{Name: "bus_core"}
	loadV    = []string{"--force-vermagic", "-v"}
	unloadW  = []string{"-w", "100"}
	rawLoad  = []string{"-vd", "/tmp/opt", "gadget", "size=3"}
	rawAway  = []string{"-rvd", "/tmp/opt", "gadget"}
	bothLive = []string{"bus_core", "gadget"}
)

// TestModprobeDoesWhatTheAgentDoes: the same calls, the same status, by either back end.
func TestModprobeDoesWhatTheAgentDoes(t *testing.T) {
	type result struct {
		Calls    []string
		Live     []string
		Observed *v1beta1.ObservedModule
		Unloaded string
		Left     []string
	}
	run := func(t *testing.T, change ...func(*v1beta1.NodeModuleSpec)) (result, [][]string) {
		r := newRig(t, fake.Options{Tree: hostTreeOf(busCore)})
		p := r.probes()
		d := r.deliver("d1", stacked)
		s := r.pass(order("gadget", d, change...))
		res := result{Live: liveNow(r)}
		if len(s.Modules) == 1 {
			res.Observed = s.Modules[0].Observed
		}
		s = r.pass(order("gadget", d, append(change, absent)...))
		res.Unloaded, res.Calls, res.Left = attempt(s, "gadget"), r.calls(), liveNow(r)
		return res, p.lines
	}
	native, lines := run(t, params("size=3"))
	same(t, "modprobe without a need", 0, len(lines))
	same(t, "native calls", []string{"finit_module bus_core", "finit_module gadget", "delete_module gadget", "delete_module bus_core"},
		native.Calls)
	cases := map[string]struct {
		given []func(*v1beta1.NodeModuleSpec)
		lines [][]string
	}{
		"args": {
			given: []func(*v1beta1.NodeModuleSpec){params("size=3"), args(loadV, unloadW)},
			lines: [][]string{{"-vd", "/tmp/opt", "--force-vermagic", "-v", "gadget", "size=3"}, {"-rvd", "/tmp/opt", "-w", "100", "gadget"}},
		},
		"args to unload only": {
			given: []func(*v1beta1.NodeModuleSpec){params("size=3"), args(nil, unloadW)},
			lines: [][]string{{"-vd", "/tmp/opt", "gadget", "size=3"}, {"-rvd", "/tmp/opt", "-w", "100", "gadget"}},
		},
		"rawArgs": {given: []func(*v1beta1.NodeModuleSpec){raw(rawLoad, rawAway)}, lines: [][]string{rawLoad, rawAway}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, lines := run(t, tc.given...)
			same(t, "result", native, got)
			same(t, "command lines", tc.lines, lines)
		})
	}
}

// TestRawArgsThatNameNothing: what came into the kernel is the order's, and goes with it.
func TestRawArgsThatNameNothing(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(busCore)})
	p := r.probes()
	d := r.deliver("d1", stacked, synth.Module{Name: "aside"})
	o := order("gadget", d, raw([]string{"pci:v00001234"}, []string{"-r", "gadget"}))
	p.alias = map[string]string{"pci:v00001234": "gadget"} // only the program knows
	s := r.pass(o)
	same(t, "attempt", "", attempt(s, "gadget"))
	same(t, "observed", buildID(t, stacked), s.Modules[0].Observed.BuildID)
	r.agent.o.Modprobe = nil // the agent of a moment without the program: what is there stays so
	s = r.pass(o)
	same(t, "still reported", 1, len(s.Modules))
	r.restart(p)
	r.pass(order("gadget", d, raw([]string{"pci:v00001234"}, []string{"-r", "gadget"}), absent))
	same(t, "live", []string(nil), liveNow(r))
	same(t, "loads", 1, loadsOf(r, "gadget"))
}

func TestModprobeThatDoesNothing(t *testing.T) {
	r := newRig(t, fake.Options{})
	p := r.probes()
	s := r.pass(order("gadget", r.deliver("d1", gadget), raw([]string{"--version"}, []string{"-r", "gadget"})))
	same(t, "attempt", "Failed LoadFailed", attempt(s, "gadget"))
	same(t, "calls of modprobe", 1, len(p.lines))
	same(t, "left in the journal", 0, len(r.agent.memory.Journal.Loaded))
}

// TestNoModprobe: nothing is unloaded for an order that cannot be carried out.
func TestNoModprobe(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.agent.o.Modprobe = nil
	r.pass(order("gadget", r.deliver("d1", gadget)))
	s := r.pass(order("gadget", r.deliver("d2", gadgetV2), args(loadV, nil)))
	same(t, "attempt", "Failed ModprobeUnsupported", attempt(s, "gadget"))
	same(t, "calls", []string{"finit_module gadget"}, r.calls())
}

func TestModprobeFails(t *testing.T) {
	cases := map[string]struct {
		fault fake.Fault
		then  string
		tries int
	}{
		"refused for now":  {fake.Fault{Errno: "ENODEV"}, "Failed NoSuchDevice", 2},
		"refused for good": {fake.Fault{Errno: "EKEYREJECTED"}, "Failed SignatureRejected", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{Tree: hostTreeOf(busCore)})
			r.probes()
			r.host.Script("finit_module", "gadget", tc.fault)
			o := order("gadget", r.deliver("d1", stacked), args(loadV, nil))
			var s *v1beta1.NodeModulesConfigStatus
			for range 2 {
				s = r.pass(o)
				r.clock.Step(time.Hour)
			}
			same(t, "attempt", tc.then, attempt(s, "gadget"))
			same(t, "tries", tc.tries, loadsOf(r, "gadget"))
			same(t, "live", []string(nil), liveNow(r)) // what came before it is taken out again
		})
	}
}

// TestModprobeHangs: what it may still load is the order's, should it come.
func TestModprobeHangs(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(busCore)})
	p := r.probes()
	p.broken = fmt.Errorf("modprobe gadget: %w", host.ErrTimeout)
	d := r.deliver("d1", stacked)
	s := r.pass(order("gadget", d, args(loadV, nil)))
	same(t, "attempt", "Failed Timeout", attempt(s, "gadget"))
	for _, m := range []synth.Module{busCore, stacked} { // it goes on after all
		m.InTree = m.Name == busCore.Name // as in the host's tree
		if err := r.host.Insmod(ko(m)); err != nil {
			t.Fatal(err)
		}
	}
	p.broken = nil
	r.clock.Step(time.Minute)
	same(t, "attempt", "", attempt(r.pass(order("gadget", d, args(loadV, nil))), "gadget"))
	r.pass(order("gadget", d, args(loadV, nil), absent))
	same(t, "live", []string(nil), liveNow(r))
}

// TestModprobeHangsBeforeAModule that takes the node down when it gets there: its load was never
// seen to end, so it counts.
func TestModprobeHangsBeforeAModule(t *testing.T) {
	for name, test := range map[string]struct {
		running bool
		// reached: the modules that came while nobody waited any more.
		reached []synth.Module
		want    string // what is said once more time has passed
		after   string // what is said after the node went down
	}{
		"it still hangs":              {running: true, want: "Waiting Timeout", after: "Waiting Quarantined"},
		"it hangs at the last module": {running: true, reached: []synth.Module{busCore}, want: "Waiting Timeout", after: "Waiting Quarantined"},
		"it has ended":                {want: "Failed Timeout", after: "Waiting Quarantined"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{Tree: hostTreeOf(busCore)})
			p := &probes{Host: r.host, broken: fmt.Errorf("modprobe gadget: %w", host.ErrTimeout)}
			o := order("gadget", r.deliver("d1", stacked), args(loadV, nil))
			r.boot(p, o)
			p.running = test.running
			for _, m := range test.reached {
				if err := r.host.Insmod(ko(m)); err != nil {
					t.Fatal(err)
				}
			}
			r.clock.Step(time.Minute)
			same(t, "attempt", test.want, attempt(r.pass(o), "gadget"))
			same(t, "calls", map[bool]int{true: 1, false: 2}[test.running], len(p.lines))
			r.host.Reboot("") // the module takes the node down
			p.running = false
			r.boot(p, o)
			same(t, "after the crash", test.after, attempt(r.last, "gadget"))
		})
	}
}

// TestModprobeLeavesWhatIsInUse and says who uses it.
func TestModprobeLeavesWhatIsInUse(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(busCore)})
	p := r.probes()
	d := r.deliver("d1", stacked)
	r.pass(order("gadget", d, args(loadV, nil)))
	if err := r.host.Hold("gadget"); err != nil {
		t.Fatal(err)
	}
	s := r.pass(order("gadget", d, args(loadV, nil), absent))
	same(t, "attempt", "InUse InUse", attempt(s, "gadget"))
	if err := r.host.Unhold("gadget"); err != nil {
		t.Fatal(err)
	}
	p.broken = errors.New("modprobe: FATAL: something else")
	r.clock.Step(time.Minute)
	same(t, "attempt", "Failed UnloadFailed", attempt(r.pass(order("gadget", d, args(loadV, nil), absent)), "gadget"))
	same(t, "live", bothLive, liveNow(r))
	p.broken = nil
	r.clock.Step(time.Minute)
	same(t, "attempt", "Absent ModuleDeleted", attempt(r.pass(order("gadget", d, args(loadV, nil), absent)), "gadget"))
	same(t, "live", []string(nil), liveNow(r))
}

// TestWhatAnotherOrderNeedsStays: modprobe would remove what nobody uses.
func TestWhatAnotherOrderNeedsStays(t *testing.T) {
	r := newRig(t, fake.Options{})
	p := r.probes()
	both := r.deliver("d1", stacked, busCore)
	core := order("bus_core", both)
	r.pass(core, order("gadget", both, args(loadV, nil)))
	same(t, "live", bothLive, liveNow(r))
	s := r.pass(core, order("gadget", both, args(loadV, nil), absent))
	same(t, "attempt", "Absent ModuleDeleted", attempt(s, "gadget"))
	same(t, "live", []string{"bus_core"}, liveNow(r))
	same(t, "loads", 1, loadsOf(r, "bus_core"))
	same(t, "calls of modprobe", 1, len(p.lines))
}

// TestArgsAreTheWayNotTheGoal: with the same build and parameters in the kernel, nothing is
// unloaded for other args.
func TestArgsAreTheWayNotTheGoal(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.probes()
	d := r.deliver("d1", gadget)
	for _, change := range [][]func(*v1beta1.NodeModuleSpec){{params("size=3")}, {params("size=3"), args(loadV, nil)},
		{params("size=3"), args(nil, unloadW)}} {
		o := order("gadget", d, change...)
		same(t, "config", &o.Config, r.pass(o).Modules[0].Config)
	}
	same(t, "calls", []string{"finit_module gadget"}, r.calls())
	r.pass(order("gadget", d, args(loadV, nil), params("size=4")))
	r.pass(order("gadget", d, raw([]string{"gadget", "size=5"}, rawAway)))
	same(t, "calls", 5, len(r.calls()))
	m, _, err := r.host.Module("gadget")
	same(t, "size", "5", m.Parameters["size"])
	same(t, "error", nil, err)
}

// TestForcedModuleIsTried although it is certain that the kernel would refuse it otherwise.
func TestForcedModuleIsTried(t *testing.T) {
	sample := synth.Module{Name: "ext4"}
	r := newRig(t, fake.Options{Tree: hostTreeOf(sample)})
	sample.Vermagic, sample.InTree = release+" SMP mod_unload", true
	if err := r.host.Insmod(sample.Bytes()); err != nil {
		t.Fatal(err)
	}
	p := r.probes()
	odd := gadgetV2
	odd.Vermagic, odd.ModVersions = release+" SMP mod_unload preempt", true
	d := r.deliver("d1", odd)
	same(t, "attempt", "Failed VermagicMismatch", attempt(r.pass(order("gadget", d, args([]string{"-v"}, nil))), "gadget"))
	same(t, "calls of modprobe", 0, len(p.lines))
	same(t, "attempt", "", attempt(r.pass(order("gadget", d, args(loadV, nil))), "gadget"))
}

// TestInTreeAndFirmwareComeBeforeModprobe, by the agent itself.
func TestInTreeAndFirmwareComeBeforeModprobe(t *testing.T) {
	r := stock(t)
	p := r.probes()
	r.stage()
	o := r.blob("gadget", "d1", "bytes")
	args(loadV, nil)(&o)
	replacing(&o)
	var before []string
	var staged string
	p.before = func() { before, staged = liveNow(r), r.onHost() }
	r.pass(o)
	same(t, "live before modprobe", []string(nil), before)
	same(t, "firmware before modprobe", "bytes", staged)
	same(t, "live", []string{"gadget"}, liveNow(r))
	absent(&o)
	p.before = nil
	r.pass(o)
	same(t, "live at last", []string{"stock", "stock_top"}, liveNow(r))
	same(t, "firmware at last", "", r.onHost())
}

// TestAgentEndsDuringModprobe: the next one finds the intent, and owns what came.
func TestAgentEndsDuringModprobe(t *testing.T) {
	for _, after := range []string{"", "bus_core", "gadget"} {
		t.Run("after "+after, func(t *testing.T) {
			r := newRig(t, fake.Options{Tree: hostTreeOf(busCore)})
			d := r.deliver("d1", stacked)
			o := order("gadget", d, raw(rawLoad, rawAway))
			r.restart(&dyingProbe{probes: &probes{Host: r.host}, dieAt: after})
			func() {
				defer func() { _ = recover() }()
				r.pass(o)
				t.Error("the agent survived")
			}()
			r.probes()
			s := r.pass(o)
			same(t, "attempt", "", attempt(s, "gadget"))
			same(t, "live", bothLive, liveNow(r))
			r.pass(order("gadget", d, raw(rawLoad, rawAway), absent))
			same(t, "live", []string(nil), liveNow(r))
			same(t, "loads", 1, loadsOf(r, "bus_core"))
		})
	}
}

// dyingProbe is an agent that ends while modprobe has loaded so far.
type dyingProbe struct {
	*probes
	dieAt string
}

func (d *dyingProbe) Modprobe(ctx context.Context, r host.ModprobeRequest) error {
	if d.dieAt != "" {
		r.Args = slices.Clone(r.Args)
		r.Args[2] = d.dieAt
		if err := d.Host.Modprobe(ctx, r); err != nil {
			return err
		}
	}
	panic("killed")
}
