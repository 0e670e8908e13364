// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

const machineX86 = 62

// loadsOf counts how often the kernel was asked to load a module.
func loadsOf(r *rig, module string) int {
	return len(slices.DeleteFunc(r.host.Calls(), func(c fake.Call) bool { return c.Call != "finit_module" || c.Module != module }))
}

// TestHopelessLoadIsNotTried, and nothing is unloaded for it.
func TestHopelessLoadIsNotTried(t *testing.T) {
	wrongFlags := gadgetV2
	wrongFlags.Vermagic, wrongFlags.ModVersions = release+" SMP mod_unload preempt", true
	wrongMachine := gadgetV2
	wrongMachine.Machine = synth.MachineAArch64
	cases := map[string]struct {
		given   synth.Module
		disable bool
		then    string
	}{
		"vermagic flags":    {given: wrongFlags, then: "Failed VermagicMismatch"},
		"machine":           {given: wrongMachine, then: "Failed VermagicMismatch"},
		"modules disabled":  {given: gadgetV2, disable: true, then: "Failed ModulesDisabled"},
		"nothing of a kind": {given: gadgetV2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sample := synth.Module{Name: "ext4"}
			r := newRig(t, fake.Options{Tree: hostTreeOf(sample), Machine: machineX86})
			sample.Vermagic, sample.InTree = release+" SMP mod_unload", true
			if err := r.host.Insmod(sample.Bytes()); err != nil {
				t.Fatal(err)
			}
			r.pass(order("gadget", r.deliver("d1", gadget)))
			if tc.disable {
				r.host.DisableModules()
			}
			s := r.pass(order("gadget", r.deliver("d2", tc.given)))
			same(t, "attempt", tc.then, attempt(s, "gadget"))
			if loads := loadsOf(r, "gadget"); tc.then != "" && (loads != 1 || loadedImage(s, "gadget") == "") {
				t.Errorf("%d loads, live %q", loads, loadedImage(s, "gadget"))
			}
		})
	}
}

// TestRefusedOncePerBoot: what the kernel has refused for good is not tried again.
func TestRefusedOncePerBoot(t *testing.T) {
	cases := map[string]fake.Fault{
		"Failed SignatureRejected": {Errno: "EKEYREJECTED"},
		"Failed UnknownSymbol":     {Errno: "EINVAL", Log: []string{"gadget: disagrees about version of symbol x"}},
	}
	for then, given := range cases {
		t.Run(then, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			r.host.Script("finit_module", "gadget", given)
			o := order("gadget", r.deliver("d1", gadget))
			for range 5 {
				same(t, "attempt", then, attempt(r.pass(o), "gadget"))
				r.clock.Step(time.Hour)
				r.restart(r.host)
			}
			same(t, "loads", 1, loadsOf(r, "gadget"))
			r.host.Reboot("")
			r.pass(o)
			same(t, "loads after a reboot", 2, loadsOf(r, "gadget"))
			r.host.Mend()
			s := r.pass(order("gadget", r.deliver("d2", gadgetV2)))
			if loadedImage(s, "gadget") == "" {
				t.Errorf("another build is not loaded: %s", attempt(s, "gadget"))
			}
		})
	}
}

// TestRefusedOnceAlsoWhenSomethingStays: a part of the load that is in use by now cannot be taken
// back.
func TestRefusedOnceAlsoWhenSomethingStays(t *testing.T) {
	r := newRig(t, fake.Options{})
	held := &holdingHost{Host: r.host, name: "bus"}
	r.restart(held)
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "EKEYREJECTED"})
	o := order("gadget", r.deliver("d1", synth.Module{Name: "bus"}, synth.Module{Name: "gadget", Depends: []string{"bus"}}))
	for range 3 {
		same(t, "attempt", "Failed SignatureRejected", attempt(r.pass(o), "gadget"))
		r.clock.Step(time.Hour)
	}
	same(t, "loads", 1, loadsOf(r, "gadget"))
}

// holdingHost has a module that somebody uses as soon as it is there.
type holdingHost struct {
	*fake.Host
	name string
}

func (h *holdingHost) Load(ctx context.Context, r host.LoadRequest) error {
	err := h.Host.Load(ctx, r)
	if r.Name == h.name && err == nil {
		err = h.Hold(h.name)
	}
	return err
}

// TestSignedAnew: a signature is not part of the build ID, so another delivery of a build that was
// refused for its signature is tried.
func TestSignedAnew(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "EKEYREJECTED", Times: 1})
	r.pass(order("gadget", r.deliver("d1", gadget)))
	s := r.pass(order("gadget", r.deliver("d2", gadget)))
	if loadedImage(s, "gadget") == "" {
		t.Errorf("attempt %q", attempt(s, "gadget"))
	}
}

// TestMissingSymbolMayCome with another module.
func TestMissingSymbolMayCome(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENOENT", Log: []string{"gadget: Unknown symbol x (err -2)"}, Times: 1})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.clock.Step(time.Hour)
	same(t, "attempt", "Failed UnknownSymbol", attempt(r.pass(o), "gadget"))
	if err := r.host.Insmod(ko(synth.Module{Name: "exporter"})); err != nil {
		t.Fatal(err)
	}
	if s := r.pass(o); loadedImage(s, "gadget") == "" {
		t.Errorf("attempt %q", attempt(s, "gadget"))
	}
}

// TestDependencyConflict: the kernel misses a symbol, and what exports it is live in another build
// than the image's.
func TestDependencyConflict(t *testing.T) {
	bus, other := synth.Module{Name: "bus"}, synth.Module{Name: "bus", Version: "other"}
	user := synth.Module{Name: "gadget", Depends: []string{"bus"}}
	disagrees := fake.Fault{Errno: "EINVAL", Log: []string{"gadget: disagrees about version of symbol bus_register"}}
	cases := map[string]struct {
		// live is there before, of the bus.
		live  *synth.Module
		fault fake.Fault
		image []synth.Module
		tree  []synth.Module
		then  string
		says  []string
	}{
		"of the image": {
			live: &other, fault: disagrees, image: []synth.Module{bus, user}, then: "Failed DependencyConflict",
			says: []string{"The kernel refused gadget (EINVAL): it needs bus, of which build " + buildID(t, other) +
				" is live, and the image has build " + buildID(t, bus) + ".",
				"\ngadget: disagrees about version of symbol bus_register"},
		},
		"of the node's own tree": {
			live: &other, fault: disagrees, image: []synth.Module{user}, tree: []synth.Module{bus}, then: "Failed DependencyConflict",
			says: []string{"of which build " + buildID(t, other) + " is live, and the node's own tree has build "},
		},
		"a symbol is not there": {live: &other, fault: fake.Fault{Errno: "ENOENT"}, image: []synth.Module{bus, user},
			then: "Failed DependencyConflict"},
		"another build that fits": {live: &other, image: []synth.Module{bus, user}, then: "Waiting DependencyKept"},
		"the very build":          {live: &bus, fault: disagrees, image: []synth.Module{bus, user}, then: "Failed UnknownSymbol"},
		"not live before":         {fault: disagrees, image: []synth.Module{bus, user}, then: "Failed UnknownSymbol"},
		"refused for something else": {live: &other, fault: fake.Fault{Errno: "ENODEV"}, image: []synth.Module{bus, user},
			then: "Failed NoSuchDevice"},
		"what is live is not needed": {live: &other, fault: disagrees, image: []synth.Module{bus, {Name: "gadget"}},
			then: "Failed UnknownSymbol"},
		"what is live is only optional": {live: &other, fault: disagrees,
			image: []synth.Module{bus, {Name: "gadget", SoftdepPre: []string{"bus"}}}, then: "Failed UnknownSymbol"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{Tree: hostTreeOf(tc.tree...)})
			if tc.live != nil {
				if err := r.host.Insmod(ko(*tc.live)); err != nil {
					t.Fatal(err)
				}
			}
			if tc.fault.Errno != "" {
				r.host.Script("finit_module", "gadget", tc.fault)
			}
			s := r.pass(order("gadget", r.deliver("d1", tc.image...)))
			same(t, "attempt", tc.then, attempt(s, "gadget"))
			for _, words := range tc.says {
				if !strings.Contains(s.Attempts[0].Message, words) {
					t.Errorf("it does not say %q: %s", words, s.Attempts[0].Message)
				}
			}
		})
	}
}

// TestDependencyConflictEnds when the build that was live has made room, although the names in the
// kernel are the same as before.
func TestDependencyConflictEnds(t *testing.T) {
	bus, other := synth.Module{Name: "bus"}, synth.Module{Name: "bus", Version: "other"}
	r := newRig(t, fake.Options{})
	if err := r.host.Insmod(ko(other)); err != nil {
		t.Fatal(err)
	}
	r.host.Script("finit_module", "gadget",
		fake.Fault{Errno: "EINVAL", Log: []string{"gadget: disagrees about version of symbol x"}, Times: 1})
	o := order("gadget", r.deliver("d1", bus, synth.Module{Name: "gadget", Depends: []string{"bus"}}))
	for range 3 {
		same(t, "attempt", "Failed DependencyConflict", attempt(r.pass(o), "gadget"))
		r.clock.Step(time.Hour)
		r.restart(r.host)
	}
	same(t, "loads", 1, loadsOf(r, "gadget"))
	if err := errors.Join(r.host.Rmmod("bus"), r.host.Insmod(ko(bus))); err != nil {
		t.Fatal(err)
	}
	if s := r.pass(o); loadedImage(s, "gadget") == "" {
		t.Errorf("attempt %q", attempt(s, "gadget"))
	}
}
