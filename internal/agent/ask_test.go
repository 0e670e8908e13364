// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// twoStock is a node that runs two of the kernel's own drivers, of which the second is often busy.
func twoStock(t *testing.T, more ...synth.Module) *rig {
	t.Helper()
	own := []synth.Module{{Name: "nic_stock"}, {Name: "busy_stock"}}
	r := newRig(t, fake.Options{Tree: hostTreeOf(own...), Permanent: []string{"fixed"}})
	for _, m := range append(own, more...) {
		m.InTree = true
		r.must(r.host.Insmod(ko(m)))
	}
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// unloads counts the modules that left since the last TakeCalls.
func (r *rig) unloads() int {
	n := 0
	for _, c := range r.host.TakeCalls() {
		if c.Call == "delete_module" && c.Result == "" {
			n++
		}
	}
	return n
}

// TestABusySetIsNotTouched: of modules that have to leave together, none leaves while one of them
// is known to stay.
func TestABusySetIsNotTouched(t *testing.T) {
	both := func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"nic_stock", "busy_stock"} }
	cases := map[string]struct {
		more []synth.Module
		busy func(r *rig) error
		free func(r *rig) error // nil: it stays as it is
		// atMost unloads happen while it is busy: none where the node can tell.
		atMost  int
		message string
	}{
		"a pod has its device open": {
			busy:    func(r *rig) error { return r.host.HoldBy("busy_stock", inPod("team/job", 8)) },
			free:    func(r *rig) error { return r.host.Unhold("busy_stock") },
			message: "Module busy_stock is in use by pod team/job",
		},
		"a process probably has its device open": {
			busy: func(r *rig) error {
				return r.host.HoldBy("busy_stock", host.User{Kind: host.UserProcess, Name: "sleep", PID: 8, Device: "/dev/loop0", Guess: true})
			},
			free:    func(r *rig) error { return r.host.Unhold("busy_stock") },
			message: "Module busy_stock is in use by probably process sleep (PID 8, /dev/loop0)",
		},
		"a module that the host does not bring uses it": {
			more:    []synth.Module{{Name: "stranger", Depends: []string{"busy_stock"}}},
			free:    func(r *rig) error { return r.host.Rmmod("stranger") },
			message: "Module busy_stock is in use by module stranger",
		},
		"by a user that cannot be seen": {
			busy:    func(r *rig) error { return r.host.Hold("busy_stock") },
			free:    func(r *rig) error { return r.host.Unhold("busy_stock") },
			atMost:  1,
			message: "Module busy_stock is in use, and no user was found",
		},
		"by users that come and go": {
			busy: func(r *rig) error {
				for range 3 {
					r.must(r.host.Hold("busy_stock"))
				}
				return nil
			},
			atMost:  1,
			message: "Module busy_stock is in use, and no user was found",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := twoStock(t, tc.more...)
			if tc.busy != nil {
				r.must(tc.busy(r))
			}
			r.host.TakeCalls()
			d := r.deliver("d1", gadget)
			unloads := 0
			for i := range 6 {
				s := r.pass(order("gadget", d, both))
				same(t, "attempt", "InUse InUse", attempt(s, "gadget"))
				if m := s.Attempts[0].Message; !strings.HasPrefix(m, tc.message) {
					t.Errorf("message %q", m)
				}
				unloads += r.unloads()
				r.clock.Step(time.Minute)
				if tc.free == nil && i < 2 {
					r.must(r.host.Unhold("busy_stock"))
				}
			}
			if unloads > tc.atMost {
				t.Errorf("%d modules left in six tries, at most %d may", unloads, tc.atMost)
			}
			if live := liveNow(r); !slices.Contains(live, "nic_stock") || !slices.Contains(live, "busy_stock") {
				t.Errorf("live: %v", live)
			}
			if tc.free == nil {
				return
			}
			r.must(tc.free(r))
			r.pass(order("gadget", d, both))
			same(t, "live", []string{"gadget"}, liveNow(r))
		})
	}
}

// TestASearchThatDidNotEnd: on a busy node, the search for a module's users may not come to its
// end. It tells nothing then, and what was found before holds while the references are there.
func TestASearchThatDidNotEnd(t *testing.T) {
	both := func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"nic_stock", "busy_stock"} }
	pass := func(r *rig, d *v1beta1.Delivery, hurried int) int {
		r.host.HurryUsers(hurried)
		same(t, "attempt", "InUse InUse", attempt(r.pass(order("gadget", d, both)), "gadget"))
		r.clock.Step(time.Minute)
		return r.unloads()
	}
	t.Run("after one that found a user", func(t *testing.T) {
		r := twoStock(t)
		r.must(r.host.HoldBy("busy_stock", inPod("team/job", 8)))
		r.host.TakeCalls()
		d, unloads := r.deliver("d1", gadget), 0
		for i := range 8 {
			unloads += pass(r, d, i)
		}
		same(t, "unloads", 0, unloads)
		r.must(r.host.Unhold("busy_stock"))
		r.host.HurryUsers(9)
		r.pass(order("gadget", d, both))
		same(t, "live", []string{"gadget"}, liveNow(r))
	})
	t.Run("from the begin, for a while", func(t *testing.T) {
		r := twoStock(t)
		r.must(r.host.HoldBy("busy_stock", inPod("team/job", 8)))
		r.host.TakeCalls()
		d, unloads := r.deliver("d1", gadget), 0
		for range 3 {
			unloads += pass(r, d, 2)
		}
		unloads += pass(r, d, 0)
		same(t, "unloads", 0, unloads)
	})
	t.Run("from the begin, for ever", func(t *testing.T) {
		r := twoStock(t)
		r.must(r.host.TakeReference("nic_stock", "busy_stock"))
		d := r.deliver("d1", gadget)
		for range 3 {
			same(t, "unloads", 0, pass(r, d, 2))
		}
		r.host.HurryUsers(9)
		r.pass(order("gadget", d, both))
		same(t, "live", []string{"gadget"}, liveNow(r))
	})
}

// TestAReferenceThatLeavesWithTheSetIsNoUser: a driver's reference goes with the driver, and the
// kernel names it nowhere.
func TestAReferenceThatLeavesWithTheSetIsNoUser(t *testing.T) {
	r := twoStock(t)
	r.must(r.host.TakeReference("nic_stock", "busy_stock"))
	r.must(r.host.Hold("busy_stock"))
	both := func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"nic_stock", "busy_stock"} }
	d := r.deliver("d1", gadget)
	same(t, "attempt", "InUse InUse", attempt(r.pass(order("gadget", d, both)), "gadget"))
	r.must(r.host.TakeReference("nic_stock", "busy_stock")) // put back, it takes its reference again
	r.host.TakeCalls()
	r.clock.Step(time.Minute)
	same(t, "attempt", "InUse InUse", attempt(r.pass(order("gadget", d, both)), "gadget"))
	same(t, "unloads", 0, r.unloads())
	r.must(r.host.Unhold("busy_stock"))
	r.clock.Step(time.Minute)
	r.pass(order("gadget", d, both))
	same(t, "live", []string{"gadget"}, liveNow(r))
}

// TestAPermanentModuleCostsOthersOneLeave: that a module has no exit function shows only when it is
// asked to leave.
func TestAPermanentModuleCostsOthersOneLeave(t *testing.T) {
	r := twoStock(t, synth.Module{Name: "fixed"})
	both := func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"nic_stock", "fixed"} }
	d := r.deliver("d1", gadget)
	for range 4 {
		same(t, "attempt", "InUse InUse", attempt(r.pass(order("gadget", d, both)), "gadget"))
		r.clock.Step(time.Minute)
	}
	same(t, "unloads", 1, r.unloads())
	same(t, "live", []string{"busy_stock", "fixed", "nic_stock"}, liveNow(r))
}

// TestABuildStaysWhereTheNextCannotCome: what is live serves until all that the next order needs is
// known to be there.
func TestABuildStaysWhereTheNextCannotCome(t *testing.T) {
	cases := map[string]struct {
		given func(r *rig, next *v1beta1.NodeModuleSpec) (others []v1beta1.NodeModuleSpec)
		want  string
	}{
		"its firmware is another Module's": {
			given: func(r *rig, _ *v1beta1.NodeModuleSpec) []v1beta1.NodeModuleSpec {
				return []v1beta1.NodeModuleSpec{r.blob("other", "d9", "theirs")}
			},
			want: "Failed FirmwareConflict",
		},
		"its firmware is the host's": {
			given: func(r *rig, _ *v1beta1.NodeModuleSpec) []v1beta1.NodeModuleSpec {
				r.file(filepath.Join(r.dir, "root", firmware.DefaultDir, "vendor/blob.bin"), []byte("the host's"))
				return nil
			},
			want: "Failed FirmwareConflict",
		},
		"its firmware cannot be written": {
			given: func(r *rig, _ *v1beta1.NodeModuleSpec) []v1beta1.NodeModuleSpec {
				r.file(filepath.Join(r.dir, "root", firmware.DefaultDir, ".drover"), nil) // in the way
				return nil
			},
			want: "Failed AgentFailed",
		},
		"a module that is to leave is busy": {
			given: func(r *rig, next *v1beta1.NodeModuleSpec) []v1beta1.NodeModuleSpec {
				r.must(r.host.HoldBy("busy_stock", inPod("team/job", 8)))
				next.Config.InTreeModulesToRemove = []string{"busy_stock"}
				return nil
			},
			want: "InUse InUse",
		},
		"another order wants a module that is to leave": {
			given: func(r *rig, next *v1beta1.NodeModuleSpec) []v1beta1.NodeModuleSpec {
				next.Config.InTreeModulesToRemove = []string{"widget"}
				return []v1beta1.NodeModuleSpec{order("widget", r.deliver("d8", synth.Module{Name: "widget"}))}
			},
			want: "Failed ModuleConflict",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := twoStock(t)
			r.stage()
			before := order("gadget", r.deliver("d1", gadget))
			next := r.blob("gadget", "d2", "mine")
			others := tc.given(r, &next)
			r.pass(append(others, before)...)
			live := liveNow(r)
			r.host.TakeCalls()
			for range 4 {
				s := r.pass(append(others, next)...)
				same(t, "attempt", tc.want, attempt(s, "gadget"))
				r.clock.Step(2 * time.Hour)
			}
			same(t, "unloads", 0, r.unloads())
			same(t, "live", live, liveNow(r))
		})
	}
}

// TestAHelperComesBackWhereItsDriverStays: the helper left first, and the kernel kept the driver.
func TestAHelperComesBackWhereItsDriverStays(t *testing.T) {
	driver := synth.Module{Name: "gadget", SoftdepPost: []string{"helper"}}
	for name, change := range map[string]func(*v1beta1.NodeModuleSpec){"upgraded": params("a=1"), "deleted": absent} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			d := r.deliver("d1", driver, synth.Module{Name: "helper"})
			r.pass(order("gadget", d))
			same(t, "live", []string{"gadget", "helper"}, liveNow(r))
			r.must(r.host.Hold("gadget"))
			for range 3 {
				same(t, "attempt", "InUse InUse", attempt(r.pass(order("gadget", d, change)), "gadget"))
				same(t, "live", []string{"gadget", "helper"}, liveNow(r))
				r.clock.Step(time.Minute)
			}
			if n := r.unloads(); n > 1 {
				t.Errorf("the helper left %d times", n)
			}
		})
	}
}

// TestAHelperComesBackAfterARestart: the agent ended between the helper's leave and the kernel's
// refusal.
func TestAHelperComesBackAfterARestart(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", synth.Module{Name: "gadget", SoftdepPost: []string{"helper"}}, synth.Module{Name: "helper"})
	r.pass(order("gadget", d))
	r.must(r.host.HoldBy("gadget", host.User{}))
	r.must(r.host.Rmmod("helper"))
	r.restart(r.host)
	same(t, "attempt", "InUse InUse", attempt(r.pass(order("gadget", d, params("a=1"))), "gadget"))
	same(t, "live", []string{"gadget", "helper"}, liveNow(r))
}

// TestAnExitThatIsSlowIsNotForEver: a module whose exit function has not returned keeps the others
// where they are, and is asked anew once it has.
func TestAnExitThatIsSlowIsNotForEver(t *testing.T) {
	r := twoStock(t)
	both := func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"nic_stock", "busy_stock"} }
	r.host.Script("delete_module", "busy_stock", fake.Fault{Delay: 2 * time.Hour, Times: 1})
	d := r.deliver("d1", gadget)
	same(t, "attempt", "Failed Timeout", attempt(r.passOf(time.Hour, order("gadget", d, both)), "gadget"))
	r.host.TakeCalls()
	for range 3 {
		r.clock.Step(time.Minute)
		same(t, "attempt", "Waiting Timeout", attempt(r.pass(order("gadget", d, both)), "gadget"))
	}
	same(t, "unloads", 0, r.unloads())

	r.clock.Step(2 * time.Hour)
	again := synth.Module{Name: "busy_stock", InTree: true}
	r.must(r.host.Insmod(ko(again)))
	r.pass(order("gadget", d, both))
	same(t, "live", []string{"gadget"}, liveNow(r))
}
