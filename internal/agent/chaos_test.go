// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
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
	// want is what the operator orders, by name; what is nil it has forgotten.
	want map[string]*v1beta1.NodeModuleSpec
	// away are the Modules whose selector label the node has lost, since when and until when.
	away map[string]span
	// server is where the orders stand, as far as they have been written again after an accident.
	server *chaosServer
	// acting are the orders that the agent has in the current look; accepted the last ones it was
	// shown.
	acting, accepted map[string]*v1beta1.NodeModuleSpec
	// builds that were delivered, by delivery.
	builds map[string]chaosBuild
	owners struct{ trusted, stranger *synth.Owner }
	// enforced: signatures are, in this boot; willEnforce: in the next.
	enforced, willEnforce bool
	// live is what was last loaded under a name: build and parameters; coming what is on its way, or
	// was.
	live, coming map[string]string
	// worked is what an order last was when it was seen fulfilled, and what it loaded since: that may
	// serve again.
	worked map[string][]string
	// refusals counts how often the kernel has rejected a signature since there was a reason to try it
	// again.
	refusals map[string]int
	retried  map[orders.Key]time.Time // retries that were carried out
	killer   *killer
	seen     int // calls that were audited
	counts   map[string]int
	next     int
	faults   struct{ unasked, wrong, stuck, again int }
}

type span struct{ since, until time.Time }

// chaosBuild is the module that an order names, as it was delivered.
type chaosBuild struct {
	id      string
	trusted bool // signed by a key that the node has
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

// hasty is a clock on which all that is waited for happens at once.
type hasty struct{ *clocktesting.FakeClock }

func (h hasty) NewTimer(d time.Duration) clock.Timer {
	timer := h.FakeClock.NewTimer(d)
	h.Step(d)
	return timer
}

var chaosNames = []string{"alpha", "beta", "gamma"}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{
		rig:    newRig(t, fake.Options{}),
		random: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // a test's dice
		want:   map[string]*v1beta1.NodeModuleSpec{}, away: map[string]span{}, builds: map[string]chaosBuild{},
		live: map[string]string{}, coming: map[string]string{}, worked: map[string][]string{}, refusals: map[string]int{},
		counts: map[string]int{},
	}
	for _, o := range []**synth.Owner{&c.owners.trusted, &c.owners.stranger} {
		var err error
		if *o, err = synth.NewOwner("chaos"); err != nil {
			t.Fatal(err)
		}
	}
	tree := hostTreeOf(synth.Module{Name: "stock"}, synth.Module{Name: "extra"})
	for name, file := range tree {
		tree[name] = &fstest.MapFile{Data: c.signed(file.Data, c.owners.trusted), Mode: file.Mode}
	}
	c.host = fake.New(fake.Options{
		Release: release, Clock: hasty{c.clock}, Tree: tree, Died: func() { panic(death{}) }, Security: c.security(false),
	})
	c.server = &chaosServer{node: c.node}
	c.api = &rest.Config{Host: "http://chaos", Transport: c.server}
	c.killer = &killer{Host: c.host, left: -1}
	c.begin()
	for _, name := range chaosNames {
		c.build(name)
	}
	return c
}

func (c *chaos) security(enforced bool) fake.Security {
	return fake.Security{Enforced: enforced, Keyring: []*x509.Certificate{c.owners.trusted.Certificate}}
}

func (c *chaos) signed(file []byte, by *synth.Owner) []byte {
	signed, err := by.Sign(file, synth.SignOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return signed
}

// begin starts a new agent.
func (c *chaos) begin() {
	c.restart(c.killer)
	a := c.agent
	a.started = c.clock.Now()
	if a.foreign != nil || len(a.distrusted) > 0 {
		c.t.Fatalf("the agent's own files are not trusted: %v, %v", a.foreign, a.distrusted)
	}
	dir := filepath.Join(c.dir, "fuse")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	f, err := fuse.Open(dir, statefile.NoSync)
	if err != nil {
		c.t.Fatal(err)
	}
	a.o.Fuse = f
}

// died is an end of the agent that it did not expect.
func (c *chaos) died() {
	c.killer.left = -1
	clear(c.refusals) // it may not have noted the last
	c.begin()
}

func (c *chaos) stopAgent() {
	if err := errors.Join(c.agent.stop(), c.agent.o.Fuse.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// look is one round of the agent; it may not survive it.
func (c *chaos) look() {
	defer c.audit()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case death:
			c.audit()
			c.died()
		default:
			panic(r)
		}
	}()
	c.operate()
	c.watch()
	if _, err := c.agent.look(klog.NewContext(c.t.Context(), klog.Logger{})); err != nil {
		c.t.Fatal(err)
	}
	c.audit()
	c.truthful()
}

// TestChaos makes random things happen and audits every call to the kernel: `make chaos-node` does
// so 10,000 times.
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
	for !c.builds[c.want["alpha"].Delivery.ID].trusted {
		c.build("alpha")
	}
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
	answers := map[string]int{} // what the kernel made of its calls
	for _, call := range c.host.Calls() {
		if call.Result != "" && call.For != "" {
			answers[call.Result]++
		}
	}
	for _, kind := range []string{"oops", "panic", "timeout", "EKEYREJECTED", "ENODEV", "EAGAIN"} {
		if answers[kind] == 0 && *chaosEvents > 1000 {
			c.t.Error(errors.New("no call ended like this: " + kind))
		}
	}
	result := map[string]any{
		"events": c.counts["events"], "seed": seed, "unaskedUnloads": c.faults.unasked, "wrongBuildLoaded": c.faults.wrong,
		"stuck":        c.faults.stuck,
		"refusedAgain": c.faults.again, "answers": answers,
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
