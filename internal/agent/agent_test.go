// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

var (
	gadget   = synth.Module{Name: "gadget", Params: []kmod.Param{{Name: "size", Type: "int"}}}
	gadgetV2 = synth.Module{Name: "gadget", Version: "2", Params: []kmod.Param{{Name: "size", Type: "int"}}}
)

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestLoadsWhatWasDeliveredAndReportsOnce(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(synth.Module{Name: "bus_core"})})
	m := synth.Module{Name: "gadget", Depends: []string{"bus-core"}, Params: gadget.Params}
	d := r.deliver("d1", m)
	o := order("gadget", d, params("size=3"))
	r.pass(o)
	s := r.pass(o)
	same(t, "calls", []string{"finit_module bus_core", "finit_module gadget"}, r.calls())
	same(t, "writes", 1, r.writes)
	if len(s.Modules) != 1 || len(s.Attempts) != 0 || len(s.Artifacts) != 1 || s.Artifacts[0].ID != "d1" {
		t.Fatalf("status: %+v", s)
	}
	got := s.Modules[0]
	boot, _ := r.host.BootID()
	same(t, "boot", boot, got.BootID)
	same(t, "config", &o.Config, got.Config)
	began := metav1.NewTime(r.clock.Now())
	same(t, "observed", &v1beta1.ObservedModule{
		Delivery: "d1", BuildID: buildID(t, m), Taint: "OE", Parameters: map[string]string{"size": "3"}, LoadBegan: &began,
	}, got.Observed)
	same(t, "asked by", "ns/gadget", r.host.Calls()[0].For)
}

func TestWaitsForTheCarrierWithoutAWord(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", &v1beta1.Delivery{ID: "d1", CarrierUID: uidOf("d1")})
	r.pass(o)
	same(t, "writes", 0, r.writes)
	r.deliver("d1", gadget)
	same(t, "image", o.Config.ContainerImage, loadedImage(r.pass(o), "gadget"))
	same(t, "writes", 1, r.writes)
}

func TestAbsenceIsNoOrder(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	s := r.pass() // the entry is gone
	same(t, "attempt", "Unclaimed Unclaimed", attempt(s, "gadget"))
	same(t, "image", o.Config.ContainerImage, loadedImage(s, "gadget"))
	r.restart(r.host) // and with it the agent's memory
	r.pass()
	same(t, "writes", 2, r.writes)
	s = r.pass(o)
	same(t, "attempt", "", attempt(s, "gadget"))
	same(t, "calls", []string{"finit_module gadget"}, r.calls())
}

func TestUnloadsByOrderAndAcknowledges(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(synth.Module{Name: "bus_core"})})
	d := r.deliver("d1", synth.Module{Name: "gadget", Depends: []string{"bus_core"}})
	r.pass(order("gadget", d))
	s := r.pass(order("gadget", d, absent))
	same(t, "attempt", "Absent ModuleDeleted", attempt(s, "gadget"))
	same(t, "image", "", loadedImage(s, "gadget"))
	same(t, "calls", []string{"finit_module bus_core", "finit_module gadget", "delete_module gadget", "delete_module bus_core"}, r.calls())
	r.pass(order("gadget", d, absent))
	r.pass() // the operator removed the entry: nothing to say
	same(t, "writes", 2, r.writes)
}

func TestDependencyInUseElsewhereStays(t *testing.T) {
	r := newRig(t, fake.Options{Tree: hostTreeOf(synth.Module{Name: "bus_core"})})
	d := r.deliver("d1", synth.Module{Name: "gadget", Depends: []string{"bus_core"}})
	r.pass(order("gadget", d))
	if err := r.host.Insmod(ko(synth.Module{Name: "other", Depends: []string{"bus_core"}})); err != nil {
		t.Fatal(err)
	}
	s := r.pass(order("gadget", d, absent))
	same(t, "attempt", "Absent ModuleDeleted", attempt(s, "gadget"))
	same(t, "still there", true, r.host.Live()["bus_core"] != "")
}

func TestInUseIsReportedAndTriedAgain(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	r.pass(order("gadget", d))
	if err := r.host.Hold("gadget"); err != nil {
		t.Fatal(err)
	}
	gone := order("gadget", d, absent)
	for range 3 {
		s := r.pass(gone)
		same(t, "attempt", "InUse InUse", attempt(s, "gadget"))
		same(t, "live", true, loadedImage(s, "gadget") != "")
	}
	r.clock.Step(5 * time.Second)
	r.pass(gone)
	same(t, "calls", []string{"finit_module gadget", "delete_module gadget EAGAIN", "delete_module gadget EAGAIN"}, r.calls())
	same(t, "writes", 2, r.writes)
	if err := r.host.Unhold("gadget"); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(10 * time.Second)
	same(t, "attempt", "Absent ModuleDeleted", attempt(r.pass(gone), "gadget"))
}

func TestHoldersAreNamed(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	r.pass(order("gadget", d))
	if err := r.host.Insmod(ko(synth.Module{Name: "rider", Depends: []string{"gadget"}})); err != nil {
		t.Fatal(err)
	}
	s := r.pass(order("gadget", d, absent))
	if !strings.Contains(s.Attempts[0].Message, "rider") {
		t.Errorf("message %q does not name the holder", s.Attempts[0].Message)
	}
}

func TestChangedOrders(t *testing.T) {
	cases := map[string]struct {
		given func(r *rig) (before, after v1beta1.NodeModuleSpec)
		then  []string
	}{
		"another build is loaded instead": {
			func(r *rig) (v1beta1.NodeModuleSpec, v1beta1.NodeModuleSpec) {
				return order("gadget", r.deliver("d1", gadget)), order("gadget", r.deliver("d2", gadgetV2))
			},
			[]string{"finit_module gadget", "delete_module gadget", "finit_module gadget"},
		},
		"other parameters are a reload": {
			func(r *rig) (v1beta1.NodeModuleSpec, v1beta1.NodeModuleSpec) {
				d := r.deliver("d1", gadget)
				return order("gadget", d, params("size=1")), order("gadget", d, params("size=2"))
			},
			[]string{"finit_module gadget", "delete_module gadget", "finit_module gadget"},
		},
		"the same build under another delivery is left alone": {
			func(r *rig) (v1beta1.NodeModuleSpec, v1beta1.NodeModuleSpec) {
				return order("gadget", r.deliver("d1", gadget)), order("gadget", r.deliver("d2", gadget))
			},
			[]string{"finit_module gadget"},
		},
		"another version of the Module is only noted": {
			func(r *rig) (v1beta1.NodeModuleSpec, v1beta1.NodeModuleSpec) {
				d := r.deliver("d1", gadget)
				return order("gadget", d), order("gadget", d, func(s *v1beta1.NodeModuleSpec) { s.Version = "v2" })
			},
			[]string{"finit_module gadget"},
		},
		"nothing is unloaded before the new delivery is there": {
			func(r *rig) (v1beta1.NodeModuleSpec, v1beta1.NodeModuleSpec) {
				d := r.deliver("d1", gadget)
				return order("gadget", d), order("gadget", &v1beta1.Delivery{ID: "d2", CarrierUID: uidOf("d2")})
			},
			[]string{"finit_module gadget"},
		},
		"nothing is unloaded when the new image has nothing to load": {
			func(r *rig) (v1beta1.NodeModuleSpec, v1beta1.NodeModuleSpec) {
				return order("gadget", r.deliver("d1", gadget)),
					order("gadget", r.deliver("d2", synth.Module{Name: "gadget", Depends: []string{"nowhere"}}))
			},
			[]string{"finit_module gadget"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			before, after := tc.given(r)
			r.pass(before)
			since := r.last.Modules[0].LastTransitionTime
			r.clock.Step(time.Minute)
			s := r.pass(after)
			same(t, "calls", tc.then, r.calls())
			if len(s.Modules) != 1 {
				t.Fatalf("not reported live: %+v", s)
			}
			same(t, "since", len(tc.then) == 1, s.Modules[0].LastTransitionTime.Equal(&since))
		})
	}
}

func TestOnlyOneStepBackIsKept(t *testing.T) {
	r := newRig(t, fake.Options{})
	for _, id := range []string{"d1", "d2", "d3"} {
		r.pass(order("gadget", r.deliver(id, synth.Module{Name: "gadget", Version: id})))
	}
	var ids []string
	for _, a := range r.last.Artifacts {
		ids = append(ids, a.ID)
	}
	same(t, "artifacts", []string{"d2", "d3"}, ids)
}

func TestRebootLoadsAgain(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	first, _ := r.host.BootID()
	r.host.Reboot("")
	r.restart(r.host)
	s := r.pass(o)
	same(t, "calls", []string{"finit_module gadget", "reboot ", "finit_module gadget"}, r.calls())
	if s.Modules[0].BootID == first {
		t.Error("the status still names the boot before")
	}
	same(t, "writes", 2, r.writes)
}

func TestAnotherKernelWaitsForTheOperator(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.host.Reboot("6.12.0-1-test")
	s := r.pass(o)
	same(t, "attempt", "Waiting WrongKernel", attempt(s, "gadget"))
	same(t, "live", "", loadedImage(s, "gadget"))
}

func TestKilledInTheMiddle(t *testing.T) {
	for _, at := range []string{"bus_core", "gadget"} {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, fake.Options{Tree: hostTreeOf(synth.Module{Name: "bus_core"})})
			d := r.deliver("d1", synth.Module{Name: "gadget", Depends: []string{"bus_core"}})
			r.restart(dyingHost{r.host, at})
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the agent survived")
					}
				}()
				r.pass(order("gadget", d))
			}()
			r.restart(r.host)
			s := r.pass(order("gadget", d))
			same(t, "calls", []string{"finit_module bus_core", "finit_module gadget"}, r.calls())
			same(t, "adopted", false, s.Modules[0].Observed.Adopted)
			r.pass(order("gadget", d, absent))
			same(t, "left in the kernel", map[string]string{}, r.host.Live())
		})
	}
}

func TestJournalLost(t *testing.T) {
	cases := map[string]struct {
		given []func(*v1beta1.NodeModuleSpec)
		then  string
		live  bool
	}{
		"an order to unload is carried out": {given: []func(*v1beta1.NodeModuleSpec){absent}, then: "Absent ModuleDeleted"},
		"an order to load adopts":           {given: []func(*v1beta1.NodeModuleSpec){}, live: true},
		"no order is reported":              {then: "Unclaimed Unclaimed", live: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			d := r.deliver("d1", gadget)
			r.pass(order("gadget", d))
			r.loseJournal()
			var orders []v1beta1.NodeModuleSpec
			if tc.given != nil {
				orders = append(orders, order("gadget", d, tc.given...))
			}
			s := r.pass(orders...)
			same(t, "attempt", tc.then, attempt(s, "gadget"))
			same(t, "live", tc.live, r.host.Live()["gadget"] != "")
			loads := slices.DeleteFunc(r.calls(), func(c string) bool { return !strings.HasPrefix(c, "finit") })
			same(t, "loads", []string{"finit_module gadget"}, loads)
		})
	}
}

// TestAReloadThatTheStatusMissed: the status is from before the reload, the journal that knew of it
// is lost, and the kernel has what is ordered. A live driver is not unloaded for that.
func TestAReloadThatTheStatusMissed(t *testing.T) {
	cases := map[string]struct {
		before, after []string
		then          int // loads in all
	}{
		"other values":             {before: []string{"size=1", "mode=a"}, after: []string{"size=3", "mode=a"}, then: 2},
		"none any more":            {before: []string{"size=1"}, then: 3},
		"the status is up to date": {before: []string{"size=3"}, after: []string{"size=3"}, then: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			d := r.deliver("d1", synth.Module{Name: "gadget", Params: []kmod.Param{{Name: "size", Type: "int"}, {Name: "mode", Type: "charp"}}})
			before := r.pass(order("gadget", d, params(tc.before...)))
			r.pass(order("gadget", d, params(tc.after...)))
			r.last = before
			r.loseJournal()
			r.pass(order("gadget", d, params(tc.after...)))
			loads := slices.DeleteFunc(r.calls(), func(c string) bool { return !strings.HasPrefix(c, "finit") })
			same(t, "loads", tc.then, len(loads))
		})
	}
}

// TestAnOrderWithoutADeliveryIsLeftAlone: another CustomResourceDefinition in the place of ours
// drops what only ours has, the delivery and the state with it. An order to unload that reads as
// one to load must load nothing.
func TestAnOrderWithoutADeliveryIsLeftAlone(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	r.pass(order("gadget", d))
	r.pass(order("gadget", nil, params("changed=1")))
	r.pass(order("gadget", nil))
	same(t, "calls", []string{"finit_module gadget"}, r.calls())
	r.pass(order("gadget", d, absent))
	r.pass(order("gadget", nil))
	r.pass(order("gadget", nil, params("changed=1")))
	same(t, "calls", []string{"finit_module gadget", "delete_module gadget"}, r.calls())
}
