// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// record makes the agent's record these orders.
func (r *rig) record(orders ...v1beta1.NodeModuleSpec) {
	r.t.Helper()
	writeRecord(r.t, filepath.Join(r.dir, "state"), r.node, "cluster-a", orders...)
}

// static is what became of one life of the static pod's agent.
type static struct {
	down    bool // the node went down
	waiting bool // it had more to do later
	err     error
}

// bootStatic runs the static pod's agent, without an API server, until it has nothing to do now.
func (r *rig) bootStatic(h host.Host) static {
	r.t.Helper()
	r.api = nil
	r.restart(h)
	dir := filepath.Join(r.dir, "fuse")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	f, err := fuse.Open(dir, statefile.NoSync)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r.agent.o.Fuse = f
	_, ctx := ktesting.NewTestContext(r.t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan static, 1)
	go func() {
		var s static
		defer func() { s.down = recover() != nil; ended <- s }()
		s.err = r.agent.Boot(ctx)
	}()
	var end static
	got := false
	err = wait.PollUntilContextTimeout(ctx, time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		select {
		case end = <-ended:
			got = true
			return true, nil
		default:
			return r.clock.HasWaiters(), nil
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if !got {
		cancel()
		end = <-ended
		end.waiting = true
		r.clock.Step(0)
	}
	if end.err != nil {
		r.t.Errorf("boot: %v", end.err)
	}
	return end
}

func TestBootLoadsWhatIsRecorded(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(synth.Module{Name: "stock"})})
	a, b := order("alpha", r.deliver("d1", synth.Module{Name: "alpha"})), order("beta", r.deliver("d2", synth.Module{Name: "beta"}))
	c, d := order("gamma", r.deliver("d3", synth.Module{Name: "gamma"})), order("delta", r.deliver("d4", synth.Module{Name: "delta"}))
	d.Config.InTreeModulesToRemove = []string{"stock"}
	r.pass(a, b, c, d)
	r.host.Reboot("")
	before := len(r.calls())
	absent(&b)
	c.Paused = true
	// The host has loaded what delta replaces, so that it would have to be unloaded.
	if err := r.host.Insmod(ko(synth.Module{Name: "stock"})); err != nil {
		t.Fatal(err)
	}
	undelivered := order("omega", r.deliver("d5", synth.Module{Name: "omega"})) // a carrier's output is there, and was never taken over
	r.record(a, b, c, d, undelivered)
	r.bootStatic(r.host)
	same(t, "calls", []string{"insmod stock", "finit_module alpha"}, r.calls()[before:])
	if _, err := r.agent.o.Store.Open("d5"); err == nil {
		t.Error("a delivery was taken over without asking")
	}
}

// TestBootTwice: the container's restart finds everything done.
func TestBootTwice(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.host.Reboot("")
	r.record(o)
	r.bootStatic(r.host)
	r.bootStatic(r.host)
	same(t, "loads of both boots", 2, loadsOf(r, "gadget"))
	// The DaemonSet's agent takes over what is there.
	r.restart(r.host)
	same(t, "image", o.Config.ContainerImage, loadedImage(r.pass(o), "gadget"))
	same(t, "loads of both boots", 2, loadsOf(r, "gadget"))
}

// TestBootUnloadsNothing, not even what stands in the way of an order, or what a load that failed
// half-way has brought in.
func TestBootUnloadsNothing(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(synth.Module{Name: "bus_core"})})
	o := order("gadget", r.deliver("d1", synth.Module{Name: "gadget", Depends: []string{"bus_core"}}))
	r.pass(o)
	r.host.Reboot("")
	before := len(r.calls())
	r.record(o)
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV", Times: 1})
	if s := r.bootStatic(r.host); !s.waiting {
		t.Error("nothing is tried again")
	}
	same(t, "calls", []string{"finit_module bus_core", "finit_module gadget ENODEV"}, r.calls()[before:])
	// The DaemonSet's agent knows that the dependency is ours.
	r.restart(r.host)
	r.pass(o)
	r.pass(order("gadget", o.Delivery, absent))
	same(t, "in the kernel", map[string]string{}, r.host.Live())
}

// TestBootProbesNothingAway: modprobe can be told to remove, also by the command line of a load.
func TestBootProbesNothingAway(t *testing.T) {
	asked := 0
	p := probesOnly{program: countingModprobe{&asked}}
	for args, want := range map[string]int{"gadget": 1, "-r gadget": 0, "-vrd /tmp/opt gadget": 0, "--remove gadget": 0, "-va gadget": 1} {
		asked = 0
		err := p.Modprobe(t.Context(), host.ModprobeRequest{Args: strings.Fields(args)})
		if asked != want || (err == nil) != (want == 1) {
			t.Errorf("%s: asked %d times, %v", args, asked, err)
		}
	}
}

type countingModprobe struct{ asked *int }

func (countingModprobe) ModprobeRunning() bool { return false }

func (c countingModprobe) Modprobe(context.Context, host.ModprobeRequest) error {
	*c.asked++
	return nil
}

func TestBootWithoutAnUsableRecord(t *testing.T) {
	for name, given := range map[string]func(r *rig, o v1beta1.NodeModuleSpec){
		"none":            func(*rig, v1beta1.NodeModuleSpec) {},
		"empty":           func(r *rig, _ v1beta1.NodeModuleSpec) { r.record() },
		"of another node": func(r *rig, o v1beta1.NodeModuleSpec) { r.record(o); r.node = "renamed" },
		"damaged": func(r *rig, o v1beta1.NodeModuleSpec) {
			writeRecord(r.t, filepath.Join(r.dir, "state"), r.node, "b", o)
		},
		"for another kernel": func(r *rig, o v1beta1.NodeModuleSpec) { o.Config.KernelVersion = "5.0.0"; r.record(o) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			o := order("gadget", r.deliver("d1", gadget))
			r.pass(o)
			r.host.Reboot("")
			given(r, o)
			if s := r.bootStatic(r.host); s.waiting {
				t.Error("it waits")
			}
			same(t, "in the kernel", map[string]string{}, r.host.Live())
		})
	}
}

// TestBootIsHeldBackToo: a module that takes the node down is struck and quarantined by the static
// pod's agent as by the DaemonSet's.
func TestBootIsHeldBackToo(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.host.Reboot("")
	r.record(o)
	bad := crashingHost{Host: r.host, at: "gadget"}
	for _, s := range []struct {
		what  string
		after time.Duration
		then  static
	}{
		{what: "the first time", then: static{down: true}},
		{what: "then it rests", then: static{waiting: true}},
		{what: "and still does", after: fuse.RetryAfter - time.Minute, then: static{waiting: true}},
		{what: "and is tried again", after: 2 * time.Minute, then: static{down: true}},
		{what: "twice in a row is enough", then: static{waiting: true}},
		{what: "for long", after: fuse.QuarantineFor - time.Hour, then: static{waiting: true}},
	} {
		r.clock.Step(s.after)
		same(t, s.what, s.then.down, r.bootStatic(bad).down)
	}
	// The DaemonSet's agent says so.
	r.boot(bad, o)
	same(t, "attempt", "Failed Quarantined", attempt(r.last, "gadget"))
}

// TestBootWatchesALoad until it has proved itself, so that a power cut long after it is no strike.
func TestBootWatchesALoad(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.record(o)
	for range fuse.EarlyLimit + 1 {
		r.host.Reboot("")
		same(t, "watches", true, r.bootStatic(r.host).waiting)
		r.clock.Step(fuse.SettleAfter)
		same(t, "watches on", false, r.bootStatic(r.host).waiting)
	}
	same(t, "loads", fuse.EarlyLimit+2, loadsOf(r, "gadget"))
}

// TestBootGivesWay: when it has to end, it finishes the load it is in and begins no other.
func TestBootGivesWay(t *testing.T) {
	r := newRig(t, fake.Options{})
	a, b := order("alpha", r.deliver("d1", synth.Module{Name: "alpha"})), order("beta", r.deliver("d2", synth.Module{Name: "beta"}))
	r.pass(a, b)
	r.host.Reboot("")
	before := len(r.calls())
	r.record(a, b)
	r.api = nil
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.restart(endingHost{Host: r.host, end: cancel})
	if err := r.agent.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	same(t, "calls", []string{"finit_module alpha"}, r.calls()[before:])
	s := r.pass(a, b)
	same(t, "beta", b.Config.ContainerImage, loadedImage(s, "beta"))
	same(t, "calls", []string{"finit_module alpha", "finit_module beta"}, r.calls()[before:])
}

// endingHost asks the agent to end while it loads.
type endingHost struct {
	*fake.Host
	end func()
}

func (e endingHost) Load(ctx context.Context, req host.LoadRequest) error {
	e.end()
	return e.Host.Load(ctx, req)
}
