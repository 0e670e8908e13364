// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// stock is a node that runs the kernel's own driver, with a module of the kernel's own on top of
// it.
func stock(t *testing.T) *rig {
	t.Helper()
	base, top := synth.Module{Name: "stock"}, synth.Module{Name: "stock_top", Depends: []string{"stock"}}
	r := newRig(t, fake.Options{Tree: hostTreeOf(base, top)})
	for _, m := range []synth.Module{base, top} {
		m.InTree = true
		if err := r.host.Insmod(ko(m)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func replacing(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"stock"} }

func liveNow(r *rig) []string { return slices.Sorted(maps.Keys(r.host.Live())) }

func TestReplacedModulesComeBack(t *testing.T) {
	both := []string{"stock", "stock_top"}
	t.Run("when ours goes", func(t *testing.T) {
		r := stock(t)
		d := r.deliver("d1", gadget)
		r.pass(order("gadget", d, replacing))
		same(t, "live", []string{"gadget"}, liveNow(r))
		r.restart(r.host)
		r.pass(order("gadget", d, replacing, absent))
		same(t, "live", both, liveNow(r))
	})
	t.Run("when ours fails", func(t *testing.T) {
		r := stock(t)
		r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV"})
		s := r.pass(order("gadget", r.deliver("d1", gadget), replacing))
		same(t, "attempt", "Failed NoSuchDevice", attempt(s, "gadget"))
		same(t, "live", both, liveNow(r))
	})
	t.Run("when a user keeps one of them", func(t *testing.T) {
		r := stock(t)
		if err := r.host.Hold("stock"); err != nil {
			t.Fatal(err)
		}
		s := r.pass(order("gadget", r.deliver("d1", gadget), replacing))
		same(t, "attempt", "InUse InUse", attempt(s, "gadget"))
		same(t, "live", both, liveNow(r))
	})
	t.Run("not for a reload", func(t *testing.T) {
		r := stock(t)
		d := r.deliver("d1", gadget)
		r.pass(order("gadget", d, replacing))
		before := len(r.calls())
		r.pass(order("gadget", d, replacing, params("a=1")))
		same(t, "calls", []string{"delete_module gadget", "finit_module gadget"}, r.calls()[before:])
		r.pass(order("gadget", d, replacing, absent))
		same(t, "live", both, liveNow(r))
	})
	t.Run("when the last that replaces them goes", func(t *testing.T) {
		r := stock(t)
		a, b := r.deliver("d1", gadget), r.deliver("d2", synth.Module{Name: "widget"})
		r.pass(order("gadget", a, replacing), order("widget", b, replacing))
		r.pass(order("gadget", a, replacing, absent), order("widget", b, replacing))
		same(t, "live", []string{"widget"}, liveNow(r))
		r.pass(order("widget", b, replacing, absent))
		same(t, "live", both, liveNow(r))
	})
	t.Run("after a kill in the middle", func(t *testing.T) {
		r := stock(t)
		d := r.deliver("d1", gadget)
		func() {
			defer func() { _ = recover() }()
			r.restart(dyingUnload{r.host, "stock"})
			r.pass(order("gadget", d, replacing))
		}()
		r.restart(r.host)
		r.pass(order("gadget", d, replacing))
		r.pass(order("gadget", d, replacing, absent))
		same(t, "live", both, liveNow(r))
	})
}

// TestReplacedModulesComeBackLater: what keeps the agent from putting them back, after ours is
// gone, only delays that.
func TestReplacedModulesComeBackLater(t *testing.T) {
	both := []string{"stock", "stock_top"}
	for name, hinder := range map[string]func(*rig, v1beta1.NodeModuleSpec){
		"it is killed right after the unload": func(r *rig, gone v1beta1.NodeModuleSpec) {
			defer func() { _ = recover() }()
			r.restart(dyingLoad{r.host})
			r.pass(gone)
		},
		"the journal cannot be written": func(r *rig, gone v1beta1.NodeModuleSpec) {
			name := filepath.Join(r.dir, "state", journal.File)
			if err := errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "in the way"), 0o700)); err != nil {
				r.t.Fatal(err)
			}
			same(r.t, "attempt", "Failed AgentFailed", attempt(r.pass(gone), "gadget"))
			same(r.t, "attempt", "Failed AgentFailed", attempt(r.pass(gone), "gadget"))
			if err := os.RemoveAll(name); err != nil {
				r.t.Fatal(err)
			}
		},
		"the node has no process for it": func(r *rig, gone v1beta1.NodeModuleSpec) {
			r.restart(lackingHost{r.host, "stock stock_top"})
			same(r.t, "attempt", "Failed AgentFailed", attempt(r.pass(gone), "gadget"))
			same(r.t, "attempt", "Failed AgentFailed", attempt(r.pass(gone), "gadget"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := stock(t)
			d := r.deliver("d1", gadget)
			r.pass(order("gadget", d, replacing))
			gone := order("gadget", d, replacing, absent)
			hinder(r, gone)
			if name != "the journal cannot be written" {
				r.restart(r.host)
			}

			s := r.pass(gone)

			same(t, "attempt", "Absent ModuleDeleted", attempt(s, "gadget"))
			same(t, "live", both, liveNow(r))
		})
	}
}

// TestReplacedModulesComeBackAsTheyWere: with the parameters that they had, after a passing error,
// too.
func TestReplacedModulesComeBackAsTheyWere(t *testing.T) {
	option := synth.Module{Name: "stock", Params: []kmod.Param{{Name: "size", Type: "int"}, {Name: "label", Type: "charp"}}}
	for name, tc := range map[string]struct {
		with   []string     // what the host loaded it with
		faults []fake.Fault // of its loads by the agent, the first one first
		want   map[string]string
		loads  int // until it is back
	}{
		"with none": {want: map[string]string{}, loads: 1},
		"with its options": {
			with: []string{"size=4", "label=two words"}, want: map[string]string{"size": "4", "label": "two words"}, loads: 2,
		},
		"a value that is shown as set": {with: []string{"label=(null)"}, want: map[string]string{}, loads: 1},
		"after a want of memory": {
			with: []string{"size=4"}, faults: []fake.Fault{{Errno: "ENOMEM", Times: 2}}, want: map[string]string{"size": "4"}, loads: 4,
		},
		"after a want of memory at the second load": {
			with: []string{"size=4"}, faults: []fake.Fault{{Times: 1}, {Errno: "ENOMEM", Times: 1}}, want: map[string]string{"size": "4"}, loads: 4,
		},
		"without those that are refused": {
			with: []string{"size=4"}, faults: []fake.Fault{{Times: 1}, {Errno: "EINVAL", Times: 1}}, want: map[string]string{}, loads: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{Tree: hostTreeOf(option)})
			own := option
			own.InTree = true
			r.must(r.host.Insmod(ko(own), tc.with...))
			d := r.deliver("d1", gadget)
			r.pass(order("gadget", d, replacing))
			for _, f := range tc.faults {
				r.host.Script("finit_module", "stock", f)
			}
			r.host.TakeCalls()
			loads := 0
			for range 4 {
				r.restart(r.host)
				s := r.pass(order("gadget", d, replacing, absent))
				for _, c := range r.host.TakeCalls() {
					if c.Call == "finit_module" {
						loads++
					}
				}
				if a := attempt(s, "gadget"); a != "Absent ModuleDeleted" && a != "Failed AgentFailed" {
					t.Errorf("attempt %s", a)
				}
			}
			same(t, "live", []string{"stock"}, liveNow(r))
			if got := r.host.Passed("stock"); !maps.Equal(got, tc.want) {
				t.Errorf("parameters %v, want %v", got, tc.want)
			}
			same(t, "loads", tc.loads, loads)
			same(t, "attempt", "Absent ModuleDeleted", attempt(r.last, "gadget"))
			if p := r.agent.memory.Journal.Parameters; len(p) > 0 {
				t.Errorf("the journal keeps %v", p)
			}
		})
	}
}

// dyingLoad ends the agent before a load.
type dyingLoad struct{ host.Host }

func (dyingLoad) Load(context.Context, host.LoadRequest) error { panic("killed") }

// dyingUnload ends the agent after an unload.
type dyingUnload struct {
	host.Host
	at string
}

func (d dyingUnload) Unload(ctx context.Context, req host.UnloadRequest) error {
	err := d.Host.Unload(ctx, req)
	if req.Name == d.at {
		panic("killed")
	}
	return err
}

// TestNoIdentityIsNoAdoption: a module without build ID and srcversion takes the place of the
// kernel's own of that name, and gives it back.
func TestNoIdentityIsNoAdoption(t *testing.T) {
	cases := map[string]struct{ stock, then synth.Module }{
		"the kernel's own has an identity": {stock: synth.Module{Name: "stock"}, then: synth.Module{Name: "stock", NoBuildID: true}},
		"neither has one": {stock: synth.Module{Name: "stock", NoBuildID: true},
			then: synth.Module{Name: "stock", NoBuildID: true, Version: "2"}},
	}
	for name, given := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{Tree: hostTreeOf(given.stock)})
			given.stock.InTree = true
			if err := r.host.Insmod(ko(given.stock)); err != nil {
				t.Fatal(err)
			}
			d := r.deliver("d1", given.then)
			s := r.pass(order("stock", d, replacing))
			same(t, "live", "registry.example/stock:1d1", loadedImage(s, "stock"))
			same(t, "calls", []string{"insmod stock", "delete_module stock", "finit_module stock"}, r.calls())
			r.restart(r.host)
			r.pass(order("stock", d, replacing))
			same(t, "calls by the next agent", 3, len(r.calls()))
			r.pass(order("stock", d, replacing, absent))
			same(t, "live", []string{"stock"}, liveNow(r))
			same(t, "calls", []string{"delete_module stock", "finit_module stock"}, r.calls()[3:])
			m, _, err := r.host.Module("stock")
			if err != nil || strings.Contains(m.Taint, "O") {
				t.Errorf("what is back has taint %q, %v", m.Taint, err)
			}
		})
	}
}
