// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// bake puts a delivery into the node's image.
func (r *rig) bake(id string, m synth.Module) {
	r.t.Helper()
	d := r.deliver(id, m)
	st, err := store.New(r.t.Context(), filepath.Join(r.dir, "store"), store.Options{
		PodsDir: filepath.Join(r.dir, "pods"), Sync: statefile.NoSync,
		Baked: true})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := st.Import(r.t.Context(), id, d.CarrierUID); err != nil {
		r.t.Fatal(err)
	}
}

// TestBakedIsLoadedAtOnce: no carrier is waited for, and the status names all that came with the
// image, so that nobody makes a carrier for the rest. It stays without an order.
func TestBakedIsLoadedAtOnce(t *testing.T) {
	c := newCluster(t)
	c.bake("d1", synth.Module{Name: "gadget", Version: "d1"})
	c.bake("d2", synth.Module{Name: "widget", Version: "d2"})
	c.order(order("gadget", &v1beta1.Delivery{ID: "d1", CarrierUID: uidOf("never")}))
	c.start()
	c.until("what is baked is live, and reported", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return len(s.Modules) == 1 && s.Modules[0].Observed.Delivery == "d1" && len(s.Artifacts) == 2
	})
	c.order(order("gadget", &v1beta1.Delivery{ID: "d1", CarrierUID: uidOf("never")}), order("widget", &v1beta1.Delivery{ID: "d2"}))
	c.until("the rest is live by an order without a carrier", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return len(s.Modules) == 2 && len(s.Artifacts) == 2
	})
}

// TestBakedMakesRoom: what came with the image is the first to go where there is no room for what
// is ordered; an order for it is kept.
func TestBakedMakesRoom(t *testing.T) {
	for name, test := range map[string]struct {
		room int
		held []string
	}{
		"room for all": {room: 3, held: []string{"d1", "d2", "d3"}},
		"no room":      {room: 2, held: []string{"d1", "d3"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			r.bake("d1", synth.Module{Name: "gadget", Version: "d1"})
			r.bake("d2", synth.Module{Name: "widget", Version: "d2"})
			r.restart(r.host)
			r.agent.o.Store = fullStore{Store: r.agent.o.Store, room: test.room}
			used := order("gadget", &v1beta1.Delivery{ID: "d1"})
			same(t, "live", "d1", r.pass(used).Modules[0].Observed.Delivery)
			r.clock.Step(time.Hour)
			r.pass(used, order("other", r.deliver("d3", synth.Module{Name: "other"})))
			held, err := r.agent.o.Store.Held()
			if err != nil {
				t.Fatal(err)
			}
			same(t, "held", test.held, slices.Sorted(maps.Keys(held)))
		})
	}
}

// TestDamagedBakeWaitsForItsCarrier: what is not as it was baked is never loaded, and the way is
// the usual one from there.
func TestDamagedBakeWaitsForItsCarrier(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.bake("d1", synth.Module{Name: "gadget", Version: "d1"})
	trees, err := filepath.Glob(filepath.Join(r.dir, "store", "sha256", "*"))
	if err != nil || len(trees) != 1 {
		t.Fatal(trees, err)
	}
	r.file(filepath.Join(trees[0], "evil.ko"), nil)
	r.restart(r.host)
	d := r.deliver("d1", synth.Module{Name: "gadget", Version: "d1"})
	s := r.pass(order("gadget", &v1beta1.Delivery{ID: "d1"}))
	if len(s.Modules) > 0 || len(s.Artifacts) > 0 || len(r.calls()) > 0 {
		t.Errorf("status %+v, calls %v", s, r.calls())
	}
	same(t, "attempt", "Waiting AwaitingDelivery", attempt(s, "gadget"))
	s = r.pass(order("gadget", d))
	same(t, "attempt", "", attempt(s, "gadget"))
	same(t, "live", "d1", s.Modules[0].Observed.Delivery)
}
