// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestImageDoesNotKnowTheKernel: what an image's own index calls built in need not be so on the
// node.
func TestImageDoesNotKnowTheKernel(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	r.write(d.CarrierUID, map[string][]byte{
		path.Join("lib/modules", release, "extra/gadget.ko"): ko(gadget),
		path.Join("lib/modules", release, "modules.builtin"): []byte("kernel/drivers/gadget.ko\n"),
	})
	s := r.pass(order("gadget", d))
	if len(s.Modules) != 1 || r.host.Live()["gadget"] == "" {
		t.Errorf("status %+v, live %v", s.Modules, r.host.Live())
	}
}

// TestOptionalDependencyMayRefuse: what only a soft dependency names must not keep a driver out.
func TestOptionalDependencyMayRefuse(t *testing.T) {
	cases := map[string]synth.Module{
		"before": {Name: "gadget", SoftdepPre: []string{"accelerator"}},
		"after":  {Name: "gadget", SoftdepPost: []string{"accelerator"}},
	}
	for name, given := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{Tree: hostTreeOf(synth.Module{Name: "accelerator"})})
			r.host.Script("finit_module", "accelerator", fake.Fault{Errno: "ENODEV", Times: 1})
			o := order("gadget", r.deliver("d1", given))
			s := r.pass(o)
			if r.host.Live()["gadget"] == "" || loadedImage(s, "gadget") == "" {
				t.Errorf("%v, attempt %q", r.calls(), attempt(s, "gadget"))
			}
			// Somebody else's load of it is no concern of ours, and nothing has drifted.
			if err := r.host.Insmod(ko(synth.Module{Name: "accelerator"})); err != nil {
				t.Fatal(err)
			}
			o.Config.Modprobe.Parameters = []string{"a=1"}
			r.pass(o)
			o.State, o.Reason = v1beta1.NodeModuleAbsent, "ModuleDeleted"
			s = r.pass(o)
			if r.host.Live()["accelerator"] == "" || attempt(s, "gadget") != "Absent ModuleDeleted" {
				t.Errorf("%v, attempt %q", r.calls(), attempt(s, "gadget"))
			}
		})
	}
}

// TestBuildsWithoutIdentity: without a build ID, the file's content tells two builds apart, and a
// module in the kernel is nobody's we know.
func TestBuildsWithoutIdentity(t *testing.T) {
	anonymous := func(version string) synth.Module {
		return synth.Module{Name: "gadget", Version: version, NoBuildID: true}
	}
	t.Run("an upgrade is done", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		r.pass(order("gadget", r.deliver("d1", anonymous("1"))))
		r.pass(order("gadget", r.deliver("d2", anonymous("2"))))
		same(t, "calls", []string{"finit_module gadget", "delete_module gadget", "finit_module gadget"}, r.calls())
	})
	t.Run("a stranger's module is left alone", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		if err := r.host.Insmod(ko(synth.Module{Name: "gadget", Version: "inbox"})); err != nil {
			t.Fatal(err)
		}
		d := r.deliver("d1", anonymous("1"))
		s := r.pass(order("gadget", d))
		same(t, "attempt", "Failed AlreadyLoadedForeign", attempt(s, "gadget"))
		r.pass(order("gadget", d, absent))
		same(t, "calls", []string{"insmod gadget"}, r.calls())
	})
	t.Run("a restart changes nothing", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		o := order("gadget", r.deliver("d1", anonymous("1")))
		r.pass(o)
		r.restart(r.host)
		s := r.pass(o)
		if loadedImage(s, "gadget") == "" {
			t.Errorf("attempt %q", attempt(s, "gadget"))
		}
		same(t, "calls", []string{"finit_module gadget"}, r.calls())
	})
}

// TestFileHoldsAnotherModule: the kernel goes by the name inside the file.
func TestFileHoldsAnotherModule(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	r.write(d.CarrierUID, map[string][]byte{path.Join("lib/modules", release, "extra/gadget.ko"): ko(synth.Module{Name: "kvm_other"})})
	s := r.pass(order("gadget", d))
	same(t, "attempt", "Failed ImageUnreadable", attempt(s, "gadget"))
	same(t, "calls", 0, len(r.calls()))
}

// TestStatusWhenTheDiskIsFull: what the agent cannot write down it can still report, and one
// order's trouble is not another's.
func TestStatusWhenTheDiskIsFull(t *testing.T) {
	r := newRig(t, fake.Options{})
	a, b := order("alpha", r.deliver("d1", synth.Module{Name: "alpha"})), order("beta", r.deliver("d2", synth.Module{Name: "beta"}))
	r.pass(a, b)
	name := filepath.Join(r.dir, "state", journal.File)
	// no write of the journal works
	if err := errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "in", "the", "way"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := r.host.Rmmod("beta"); err != nil {
		t.Fatal(err)
	}
	s := r.pass(a, b)
	if loadedImage(s, "alpha") == "" || loadedImage(s, "beta") != "" {
		t.Errorf("live: %+v", s.Modules)
	}
	same(t, "attempt", "Failed AgentFailed", attempt(s, "beta"))
}

// TestMessagesFitTheAPI: whatever is in an image, its words must not keep the node's status from
// being written.
func TestMessagesFitTheAPI(t *testing.T) {
	for name, depends := range map[string]string{"long": strings.Repeat("x", 3000), "not UTF-8": "caf\xe9"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			o := order("gadget", r.deliver("d1", synth.Module{Name: "gadget", Depends: []string{depends}}))
			for range 4 {
				data, err := json.Marshal(r.pass(o)) // what the API server stores
				if err != nil {
					t.Fatal(err)
				}
				r.last = &v1beta1.NodeModulesConfigStatus{}
				if err := json.Unmarshal(data, r.last); err != nil {
					t.Fatal(err)
				}
				r.clock.Step(time.Second)
			}
			same(t, "writes", 1, r.writes)
			for _, a := range r.last.Attempts {
				if len(a.Message) > 2048 || a.State != v1beta1.AttemptFailed {
					t.Errorf("%s with a message of %d bytes", a.State, len(a.Message))
				}
			}
		})
	}
}

// TestLiveDependency: what is in the kernel need not be in a file.
func TestLiveDependency(t *testing.T) {
	core, user := synth.Module{Name: "vendor_core"}, synth.Module{Name: "gadget", Depends: []string{"vendor_core"}}
	t.Run("loaded before", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		s := r.pass(order("vendor_core", r.deliver("d1", core)),
			order("zzz", r.deliver("d2", user), func(s *v1beta1.NodeModuleSpec) { s.Config.Modprobe.ModuleName = "gadget" }))
		if loadedImage(s, "zzz") == "" {
			t.Errorf("attempt %q", attempt(s, "zzz"))
		}
	})
	t.Run("loaded after", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		o := order("gadget", r.deliver("d1", user))
		for range 8 {
			s := r.pass(o)
			same(t, "attempt", "Failed MissingDependency", attempt(s, "gadget"))
			r.clock.Step(10 * time.Minute)
			r.pass(o)
		}
		if err := r.host.Insmod(ko(core)); err != nil {
			t.Fatal(err)
		}
		if s := r.pass(o); loadedImage(s, "gadget") == "" { // at once, not after the back-off
			t.Errorf("attempt %q", attempt(s, "gadget"))
		}
	})
}

// TestReplacedDependencyIsOurs: what takes an in-tree module's place leaves with the order.
func TestReplacedDependencyIsOurs(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(synth.Module{Name: "core"})})
	if err := r.host.Insmod(ko(synth.Module{Name: "core"})); err != nil {
		t.Fatal(err)
	}
	o := order("ib", r.deliver("d1", synth.Module{Name: "core", Version: "other"},
		synth.Module{Name: "ib", Depends: []string{"core"}, Version: "other"}))
	o.Config.InTreeModulesToRemove = []string{"core"}
	r.pass(o)
	absent(&o)
	r.pass(o)
	if id := r.host.Live()["core"]; id == buildID(t, synth.Module{Name: "core", Version: "other"}) {
		t.Errorf("our core stays: %v", r.calls())
	}
}

// TestModuleThatAnotherOrderNeeds stays, and the acknowledgement says so.
func TestModuleThatAnotherOrderNeeds(t *testing.T) {
	core := synth.Module{Name: "core"}
	user := synth.Module{Name: "ib", Depends: []string{"core"}}
	given := func(t *testing.T) (*rig, *v1beta1.Delivery, v1beta1.NodeModuleSpec) {
		r := newRig(t, fake.Options{})
		d, other := r.deliver("d1", core), order("ib", r.deliver("d2", core, user))
		r.pass(order("core", d), other)
		return r, d, other
	}
	t.Run("unload", func(t *testing.T) {
		r, d, other := given(t)
		s := r.pass(order("core", d, absent), other)
		for _, a := range s.Attempts {
			if a.Name == "core" && (a.State != v1beta1.AttemptAbsent || !strings.Contains(a.Message, "ns/ib")) {
				t.Errorf("%s: %s", a.State, a.Message)
			}
		}
		if r.host.Live()["core"] == "" {
			t.Error("core is gone")
		}
	})
	t.Run("replace", func(t *testing.T) {
		r, _, other := given(t)
		s := r.pass(order("core", r.deliver("d3", synth.Module{Name: "core", Version: "2"})), other)
		same(t, "attempt", "Failed ModuleConflict", attempt(s, "core"))
	})
}

// countingStore counts what costs a verification of a whole delivery.
type countingStore struct {
	execute.Store
	opened *int
}

func (c countingStore) Open(id string) (fs.FS, error) {
	*c.opened++
	return c.Store.Open(id)
}

// TestRestCostsNothing: an order that waits for somebody else is decided without reading its
// delivery again.
func TestRestCostsNothing(t *testing.T) {
	r := newRig(t, fake.Options{})
	if err := r.host.Insmod(ko(gadgetV2)); err != nil {
		t.Fatal(err)
	}
	o, opened := order("gadget", r.deliver("d1", gadget)), 0
	r.agent.o.Store = countingStore{r.agent.o.Store, &opened}
	for range 10 {
		same(t, "attempt", "Failed AlreadyLoadedForeign", attempt(r.pass(o), "gadget"))
	}
	same(t, "openings", 1, opened)
	if err := r.host.Rmmod("gadget"); err != nil {
		t.Fatal(err)
	}
	if s := r.pass(o); loadedImage(s, "gadget") == "" {
		t.Errorf("attempt %q", attempt(s, "gadget"))
	}
	same(t, "openings", 2, opened) // verified again before the load
}
