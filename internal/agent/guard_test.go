// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// crashingHost goes down, and its agent with it, when a module is loaded.
type crashingHost struct {
	*fake.Host
	at string
	// dump is what the kernel leaves in persistent storage.
	dump string
}

func (c crashingHost) Load(ctx context.Context, req host.LoadRequest) error {
	if req.Name != c.at {
		return c.Host.Load(ctx, req)
	}
	if c.dump != "" {
		c.Dump(c.dump)
	}
	c.Reboot("")
	panic("the node is down")
}

// live restarts the agent on a host, with the node's fuse, and passes once. It tells whether the
// node went down.
func (r *rig) boot(h host.Host, o v1beta1.NodeModuleSpec) (down bool) {
	r.t.Helper()
	r.restart(h)
	dir := filepath.Join(r.dir, "fuse")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	f, err := fuse.Open(dir, statefile.NoSync)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = f.Close() })
	r.agent.o.Fuse = f
	defer func() { down = recover() != nil }()
	r.pass(o)
	return false
}

// TestAFuseThatCannotBeWrittenIsTold: a load counts as good after a while, which the fuse notes. A
// disk that has filled up meanwhile stops loads and unloads, and not the agent's reports.
func TestAFuseThatCannotBeWrittenIsTold(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	if r.boot(r.host, order("gadget", d)) {
		t.Fatal("the node went down")
	}
	name := filepath.Join(r.dir, "fuse", "fuse.json")
	if err := errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(fuse.SettleAfter)

	s := r.pass(order("gadget", d, absent))

	same(t, "attempt", "Failed AgentFailed", attempt(s, "gadget"))
	same(t, "live", []string{"gadget"}, liveNow(r))
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
	same(t, "attempt", "Absent ModuleDeleted", attempt(r.pass(order("gadget", d, absent)), "gadget"))
}

func TestNodeThatGoesDownAtALoad(t *testing.T) {
	r := newRig(t, fake.Options{})
	bad := crashingHost{Host: r.host, at: "gadget"}
	o := order("gadget", r.deliver("d1", gadget))
	steps := []struct {
		what  string
		after time.Duration
		down  bool
		then  string
	}{
		{what: "the first time", down: true},
		{what: "then it rests", then: "Waiting Quarantined"},
		{what: "and is tried again", after: fuse.RetryAfter, down: true},
		{what: "twice in a row is enough", then: "Failed Quarantined"},
		{what: "for long", after: fuse.QuarantineFor - time.Hour, then: "Failed Quarantined"},
	}
	for _, s := range steps {
		r.clock.Step(s.after)
		if down := r.boot(bad, o); down != s.down {
			t.Fatalf("%s: the node went down: %v", s.what, down)
		}
		if !s.down {
			same(t, s.what, s.then, attempt(r.last, "gadget"))
		}
	}
	bad.at = "" // what is wrong is the build
	r.boot(bad, order("gadget", r.deliver("d2", gadgetV2)))
	if loadedImage(r.last, "gadget") == "" {
		t.Errorf("another build is not loaded: %s", attempt(r.last, "gadget"))
	}
}

func TestKernelNamesTheModule(t *testing.T) {
	r := newRig(t, fake.Options{})
	dump := "<1>[   10.0] BUG: kernel NULL pointer dereference, address: 0000000000000000\n<4>[   10.0] RIP: " +
		"0010:gadget_init+0x5/0x1000 [gadget]\n" +
		"<0>[   10.1] Kernel panic - not syncing: Fatal exception\n"
	bad := crashingHost{Host: r.host, at: "gadget", dump: dump}
	o := order("gadget", r.deliver("d1", gadget))
	if !r.boot(bad, o) || r.boot(bad, o) {
		t.Fatal("the node was to go down once")
	}
	same(t, "attempt", "Failed Quarantined", attempt(r.last, "gadget"))
}

// TestKilledAgentIsNoCrash: the same boot goes on.
func TestKilledAgentIsNoCrash(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	if !r.boot(dyingHost{Host: r.host, dieAt: "gadget"}, o) {
		t.Fatal("the agent was to die")
	}
	r.boot(r.host, o)
	if loadedImage(r.last, "gadget") == "" {
		t.Errorf("attempt %q", attempt(r.last, "gadget"))
	}
	same(t, "loads", 1, loadsOf(r, "gadget"))
}

// strikeOf is the strike that a status reports about an order.
func strikeOf(s *v1beta1.NodeModulesConfigStatus, name string) *v1beta1.Strike {
	for _, a := range s.Attempts {
		if a.Name == name {
			return a.Strike
		}
	}
	return nil
}

// TestStrikesAreReported: the operator decides from them what other nodes get.
func TestStrikesAreReported(t *testing.T) {
	cases := map[string]struct {
		dump string
		then v1beta1.Strike
	}{
		"without evidence": {},
		"with evidence": {dump: "<4>[   10.0] RIP: 0010:gadget_init+0x5/0x1000 [gadget]\n<0>[   10.1] Kernel panic - not syncing: Fatal " +
			"exception\n", then: v1beta1.Strike{Evidence: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			o := order("gadget", r.deliver("d1", gadget))
			began := metav1.NewTime(r.clock.Now())
			if !r.boot(crashingHost{Host: r.host, at: "gadget", dump: tc.dump}, o) {
				t.Fatal("the node was to go down")
			}
			r.boot(r.host, o)
			tc.then.Delivery, tc.then.Build, tc.then.Began = "d1", "gadget (build "+buildID(t, gadget)+")", began
			if diff := cmp.Diff(&tc.then, strikeOf(r.last, "gadget")); diff != "" {
				t.Errorf("strike (-want +got):\n%s", diff)
			}
			writes := r.writes
			r.pass(o)
			same(t, "writes afterwards", writes, r.writes)
			paused(&o)
			r.pass(o)
			same(t, "reported while paused", true, strikeOf(r.last, "gadget") != nil)
		})
	}
}

// TestExcuse: what the operator found to come from outside is taken back, once.
func TestExcuse(t *testing.T) {
	r := newRig(t, fake.Options{})
	bad := crashingHost{Host: r.host, at: "gadget"}
	o := order("gadget", r.deliver("d1", gadget))
	excuse := func() { o.Excused = new(strikeOf(r.last, "gadget").Began) }
	if !r.boot(bad, o) || r.boot(bad, o) {
		t.Fatal("the node was to go down once")
	}
	excuse()
	r.clock.Step(time.Second)
	if !r.boot(bad, o) || r.boot(bad, o) {
		t.Fatal("the node was to try again, and to go down once")
	}
	same(t, "a later strike", false, strikeOf(r.last, "gadget").Kept)
	excuse()
	if r.boot(bad, o) {
		t.Fatal("a second excuse was not to count")
	}
	same(t, "it says so", true, strikeOf(r.last, "gadget").Kept)

	r.clock.Step(fuse.RetryAfter)
	r.boot(r.host, o)
	same(t, "live in the end", true, loadedImage(r.last, "gadget") != "")
}

// TestOopsIsBlamed: the build is not loaded at the next boot either, and another one is.
func TestOopsIsBlamed(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.host.Script("finit_module", "gadget", fake.Fault{Oops: true, Times: 1})
	o := order("gadget", r.deliver("d1", gadget))
	r.boot(r.host, o)
	same(t, "attempt", "Failed LoadFailed", attempt(r.last, "gadget"))
	r.clock.Step(time.Hour)
	r.boot(r.host, o)
	same(t, "attempt of the next agent", "Waiting Timeout", attempt(r.last, "gadget"))
	r.host.Reboot("")
	r.boot(r.host, o)
	same(t, "attempt after a boot", "Failed Quarantined", attempt(r.last, "gadget"))
	same(t, "loads", 1, loadsOf(r, "gadget"))
	if r.boot(r.host, order("gadget", r.deliver("d2", gadgetV2))); loadedImage(r.last, "gadget") == "" {
		t.Errorf("another build: %s", attempt(r.last, "gadget"))
	}
}
