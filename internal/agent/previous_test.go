// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestFailedBuildBringsThePreviousOneBack, and is rarely tried again: each try takes out what
// serves.
func TestFailedBuildBringsThePreviousOneBack(t *testing.T) {
	cases := map[string]struct {
		given fake.Fault
		says  string
	}{
		"refused for good": {given: fake.Fault{Errno: "EKEYREJECTED", Times: 1}, says: "SignatureRejected"},
		"refused for now":  {given: fake.Fault{Errno: "ENODEV", Log: []string{"gadget: no device"}, Times: 1}, says: "NoSuchDevice"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			first := order("gadget", r.deliver("d1", gadget))
			second := order("gadget", r.deliver("d2", gadgetV2))
			r.pass(first)
			r.host.Script("finit_module", "gadget", tc.given)
			for range 4 {
				s := r.pass(second)
				same(t, "attempt", "Failed RolledBack", attempt(s, "gadget"))
				same(t, "live", first.Config.ContainerImage, loadedImage(s, "gadget"))
				if m := s.Attempts[0].Message; !strings.Contains(m, tc.says) || !strings.Contains(m, first.Config.ContainerImage) {
					t.Errorf("message %q", m)
				}
				r.clock.Step(14 * time.Minute)
				r.restart(r.host)
			}
			want := []string{"finit_module gadget", "delete_module gadget", "finit_module gadget " + tc.given.Errno, "finit_module gadget"}
			if got := r.calls(); !slices.Equal(want, got) {
				t.Errorf("calls %v, want %v", got, want)
			}
			same(t, "build", buildID(t, gadget), r.host.Live()["gadget"])

			third := gadgetV2
			third.Version = "3"
			s := r.pass(order("gadget", r.deliver("d3", third)))
			same(t, "attempt of the next build", "", attempt(s, "gadget"))
			same(t, "build", buildID(t, third), r.host.Live()["gadget"])
		})
	}
}

// TestADeletedModuleHasNothingToGoBackTo, also where a boot has unloaded it: another Module of its
// name waits for its own image.
func TestADeletedModuleHasNothingToGoBackTo(t *testing.T) {
	r := newRig(t, fake.Options{})
	first := r.deliver("d1", gadget)
	r.pass(order("gadget", first))
	r.host.Reboot("")
	r.restart(r.host)
	same(t, "attempt", "Absent ModuleDeleted", attempt(r.pass(order("gadget", first, absent)), "gadget"))
	r.restart(r.host)

	s := r.pass(order("gadget", &v1beta1.Delivery{ID: "d2", CarrierUID: uidOf("d2")}))

	same(t, "live", "", loadedImage(s, "gadget"))
	same(t, "calls", []string{"finit_module gadget", "reboot "}, r.calls())
}

// TestRetryTriesAnOrderThatWasRolledBack at once, also one that the kernel refused for good.
func TestRetryTriesAnOrderThatWasRolledBack(t *testing.T) {
	for _, errno := range []string{"ENODEV", "EKEYREJECTED"} {
		t.Run(errno, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			r.pass(order("gadget", r.deliver("d1", gadget)))
			second := order("gadget", r.deliver("d2", gadgetV2))
			r.host.Script("finit_module", "gadget", fake.Fault{Errno: errno, Times: 1})
			same(t, "attempt", "Failed RolledBack", attempt(r.pass(second), "gadget"))
			r.restart(r.host)
			second.Retry = &metav1.Time{Time: r.clock.Now()}
			same(t, "attempt", "", attempt(r.pass(second), "gadget"))
			same(t, "build", buildID(t, gadgetV2), r.host.Live()["gadget"])
		})
	}
}

// TestFailureThatMayPassIsTriedAgain after an hour, then after two, and so on up to a day.
func TestFailureThatMayPassIsTriedAgain(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.pass(order("gadget", r.deliver("d1", gadget)))
	second := order("gadget", r.deliver("d2", gadgetV2))
	tried := func() int {
		return len(slices.DeleteFunc(r.calls(), func(c string) bool { return c != "finit_module gadget ENOMEM" }))
	}
	fails := fake.Fault{Errno: "ENOMEM", Times: 1}
	r.host.Script("finit_module", "gadget", fails)
	for _, step := range []struct {
		after time.Duration
		tried int
	}{{0, 1}, {59 * time.Minute, 1}, {time.Minute, 2}, {119 * time.Minute, 2}} {
		if step.after == time.Minute {
			r.host.Script("finit_module", "gadget", fails)
		}
		r.clock.Step(step.after)
		same(t, "attempt", "Failed RolledBack", attempt(r.pass(second), "gadget"))
		same(t, "tries", step.tried, tried())
	}
	r.clock.Step(time.Minute)
	same(t, "attempt", "", attempt(r.pass(second), "gadget"))
	same(t, "build", buildID(t, gadgetV2), r.host.Live()["gadget"])
}

// TestNextBootTriesAgain, and goes back once more when it fails.
func TestNextBootTriesAgain(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.pass(order("gadget", r.deliver("d1", gadget)))
	second := order("gadget", r.deliver("d2", gadgetV2))
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV", Times: 1})
	r.pass(second)
	r.host.Reboot("")
	r.restart(r.host)
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV", Times: 1})
	same(t, "attempt", "Failed RolledBack", attempt(r.pass(second), "gadget"))
	same(t, "build", buildID(t, gadget), r.host.Live()["gadget"])
	r.host.Reboot("")
	r.restart(r.host)
	same(t, "attempt", "", attempt(r.pass(second), "gadget"))
	same(t, "build", buildID(t, gadgetV2), r.host.Live()["gadget"])
}

// TestRebootBeforeTheNewBuildIsThere: the previous one serves until it is delivered.
func TestRebootBeforeTheNewBuildIsThere(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.pass(order("gadget", r.deliver("d1", gadget)))
	second := order("gadget", &v1beta1.Delivery{ID: "d2", CarrierUID: uidOf("d2")})
	r.pass(second)
	r.host.Reboot("")
	r.restart(r.host)
	s := r.pass(second)
	same(t, "live", "registry.example/gadget:1d1", loadedImage(s, "gadget"))
	r.deliver("d2", gadgetV2)
	s = r.pass(second)
	same(t, "live", "registry.example/gadget:1d2", loadedImage(s, "gadget"))
}

// TestNothingToGoBackTo: without a previous order of this kernel, a failure is a failure.
func TestNothingToGoBackTo(t *testing.T) {
	cases := map[string]func(r *rig){
		"never worked": func(*rig) {},
		"another kernel": func(r *rig) {
			o := order("gadget", r.deliver("d1", gadget))
			r.pass(o)
			r.agent.memory.Journal.Worked[orders.Key{Namespace: "ns", Name: "gadget"}].Config.KernelVersion = "5.10.0-other"
		},
		"its content is gone": func(r *rig) {
			r.pass(order("gadget", r.deliver("d1", gadget)))
			if err := os.RemoveAll(filepath.Join(r.dir, "store")); err != nil {
				r.t.Fatal(err)
			}
			r.restart(r.host)
		},
	}
	for name, given := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			given(r)
			r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV", Times: 1})
			s := r.pass(order("gadget", r.deliver("d2", gadgetV2)))
			same(t, "attempt", "Failed NoSuchDevice", attempt(s, "gadget"))
			same(t, "live", "", loadedImage(s, "gadget"))
		})
	}
}

// TestReplacedModuleStaysOutForThePreviousBuild, and comes back when that fails as well.
func TestReplacedModuleStaysOutForThePreviousBuild(t *testing.T) {
	replaces := func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"stock"} }
	for _, tc := range []struct {
		name     string
		failures int
		live     []string
	}{
		{"the previous one serves", 1, []string{"gadget"}},
		{"both fail", 2, []string{"stock"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stock := synth.Module{Name: "stock"}
			r := newRig(t, fake.Options{Tree: hostTreeOf(stock)})
			if err := r.host.Insmod(ko(stock)); err != nil {
				t.Fatal(err)
			}
			r.pass(order("gadget", r.deliver("d1", gadget), replaces))
			r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV", Times: tc.failures})
			r.pass(order("gadget", r.deliver("d2", gadgetV2), replaces))
			var live []string
			for name := range r.host.Live() {
				live = append(live, name)
			}
			if !slices.Equal(tc.live, live) {
				t.Errorf("live %v, want %v; calls %v", live, tc.live, r.calls())
			}
			if back := slices.Contains(r.calls(), "finit_module stock"); back != (tc.failures > 1) {
				t.Errorf("calls %v", r.calls())
			}
		})
	}
}

// TestUnloadPolicyOnReboot: nothing is unloaded; the next boot brings what is wanted.
func TestUnloadPolicyOnReboot(t *testing.T) {
	onReboot := func(s *v1beta1.NodeModuleSpec) { s.UnloadPolicy = v1beta1.UnloadOnReboot }
	cases := map[string]struct {
		then  func(r *rig) v1beta1.NodeModuleSpec
		after string // attempt after the boot
		live  bool
	}{
		"another build": {
			then: func(r *rig) v1beta1.NodeModuleSpec {
				return order("gadget", r.deliver("d2", gadgetV2), onReboot)
			},
			live: true,
		},
		"deleted": {
			then: func(r *rig) v1beta1.NodeModuleSpec {
				return order("gadget", r.deliver("d1", gadget), onReboot, absent)
			},
			after: "Absent ModuleDeleted",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			r.pass(order("gadget", r.deliver("d1", gadget), onReboot))
			o := tc.then(r)
			s := r.pass(o)
			same(t, "attempt", "Waiting RebootRequired", attempt(s, "gadget"))
			same(t, "live", "registry.example/gadget:1d1", loadedImage(s, "gadget"))
			same(t, "calls", 1, len(r.calls()))
			r.host.Reboot("")
			r.restart(r.host)
			s = r.pass(o)
			same(t, "attempt", tc.after, attempt(s, "gadget"))
			if _, live := r.host.Live()["gadget"]; live != tc.live {
				t.Errorf("calls %v", r.calls())
			}
		})
	}
}

// TestSkipChecks lets the kernel decide, once.
func TestSkipChecks(t *testing.T) {
	wrong := gadgetV2
	wrong.Machine = synth.MachineAArch64
	r := newRig(t, fake.Options{Machine: machineX86})
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENOEXEC", Log: []string{"gadget: version magic 'x' should be 'y'"}})
	o := order("gadget", r.deliver("d1", wrong), func(s *v1beta1.NodeModuleSpec) { s.SkipChecks = true })
	for range 3 {
		same(t, "attempt", "Failed VermagicMismatch", attempt(r.pass(o), "gadget"))
		r.clock.Step(time.Hour)
	}
	same(t, "loads", 1, loadsOf(r, "gadget"))
}

// TestDependencyThatLeavesIsMissing before anything is unloaded for an order that counts on it.
func TestDependencyThatLeavesIsMissing(t *testing.T) {
	part, top := synth.Module{Name: "part"}, synth.Module{Name: "gadget", Depends: []string{"part"}}
	newer := top
	newer.Version = "2"
	cases := map[string]struct {
		given func(r *rig) v1beta1.NodeModuleSpec
		calls []string
	}{
		"with the previous build": {
			given: func(r *rig) v1beta1.NodeModuleSpec {
				r.pass(order("gadget", r.deliver("d1", part, top)))
				return order("gadget", r.deliver("d2", newer))
			},
			calls: []string{"finit_module part", "finit_module gadget"},
		},
		"with what the order replaces": {
			given: func(r *rig) v1beta1.NodeModuleSpec {
				if err := r.host.Insmod(ko(part)); err != nil {
					r.t.Fatal(err)
				}
				return order("gadget", r.deliver("d2", newer), func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"part"} })
			},
			calls: []string{"insmod part"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			same(t, "attempt", "Failed MissingDependency", attempt(r.pass(tc.given(r)), "gadget"))
			same(t, "calls", tc.calls, r.calls())
		})
	}
}

// TestARefusedDependencyTakesNoDriverOut: the kernel refused a dependency as one delivery signs it,
// and has it from another one. The unload before the next load would take it out again.
func TestARefusedDependencyTakesNoDriverOut(t *testing.T) {
	r := newRig(t, fake.Options{})
	bus := synth.Module{Name: "bus"}
	first := synth.Module{Name: "gadget", Depends: []string{"bus"}}
	second := synth.Module{Name: "gadget", Version: "2", Depends: []string{"bus"}, Params: gadget.Params}
	r.pass(order("gadget", r.deliver("d1", bus, first)))
	d := r.deliver("d2", bus, second)
	r.host.Script("finit_module", "bus", fake.Fault{Errno: "EKEYREJECTED", Times: 1})
	r.pass(order("gadget", d))
	same(t, "serves", buildID(t, first), r.host.Live()["gadget"])
	calls := len(r.calls())

	s := r.pass(order("gadget", d, params("size=3")))

	same(t, "attempt", "Failed SignatureRejected", attempt(s, "gadget"))
	same(t, "further calls", 0, len(r.calls())-calls)
}
