// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

func TestWhatCannotBeLoadedSaysWhy(t *testing.T) {
	inTree := func(names ...string) func(*v1beta1.NodeModuleSpec) {
		return func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = names }
	}
	insmod := func(r *rig, m synth.Module) {
		if err := r.host.Insmod(ko(m)); err != nil {
			r.t.Fatal(err)
		}
	}
	cases := map[string]struct {
		given func(r *rig) v1beta1.NodeModuleSpec
		then  string
		calls []string
	}{
		"built for another kernel": {
			func(r *rig) v1beta1.NodeModuleSpec {
				return order("gadget", r.deliver("d1", synth.Module{Name: "gadget", Vermagic: "5.10.0 SMP"}))
			},
			"Failed VermagicMismatch", []string{"finit_module gadget ENOEXEC"},
		},
		"dependency that is nowhere": {
			func(r *rig) v1beta1.NodeModuleSpec {
				return order("gadget", r.deliver("d1", synth.Module{Name: "gadget", Depends: []string{"nowhere"}}))
			},
			"Failed MissingDependency", nil,
		},
		"module that is not in the image": {
			func(r *rig) v1beta1.NodeModuleSpec {
				return order("widget", r.deliver("d1", gadget))
			},
			"Failed MissingDependency", nil,
		},
		"no device": {
			func(r *rig) v1beta1.NodeModuleSpec {
				r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV"})
				return order("gadget", r.deliver("d1", gadget))
			},
			"Failed NoSuchDevice", []string{"finit_module gadget ENODEV"},
		},
		"dependencies of a failed load go again": {
			func(r *rig) v1beta1.NodeModuleSpec {
				r.host.Script("finit_module", "gadget", fake.Fault{Errno: "EKEYREJECTED"})
				return order("gadget", r.deliver("d1", synth.Module{Name: "bus"}, synth.Module{Name: "gadget", Depends: []string{"bus"}}))
			},
			"Failed SignatureRejected", []string{"finit_module bus", "finit_module gadget EKEYREJECTED", "delete_module bus"},
		},
		"another build is there": {
			func(r *rig) v1beta1.NodeModuleSpec {
				insmod(r, gadgetV2)
				return order("gadget", r.deliver("d1", gadget))
			},
			"Failed AlreadyLoadedForeign", []string{"insmod gadget"},
		},
		"another build is there, and the order replaces it": {
			func(r *rig) v1beta1.NodeModuleSpec {
				insmod(r, gadgetV2)
				return order("gadget", r.deliver("d1", gadget), inTree("gadget"))
			},
			"", []string{"insmod gadget", "delete_module gadget", "finit_module gadget"},
		},
		"in-tree module in use": {
			func(r *rig) v1beta1.NodeModuleSpec {
				insmod(r, synth.Module{Name: "old_gadget"})
				if err := r.host.Hold("old_gadget"); err != nil {
					r.t.Fatal(err)
				}
				return order("gadget", r.deliver("d1", gadget), inTree("old-gadget", "not_there"))
			},
			"InUse InUse", []string{"insmod old_gadget", "delete_module old_gadget EAGAIN"},
		},
		"modprobe arguments, and no modprobe": {
			func(r *rig) v1beta1.NodeModuleSpec {
				r.agent.o.Modprobe = nil
				return order("gadget", r.deliver("d1", gadget), func(s *v1beta1.NodeModuleSpec) {
					s.Config.Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{"-v"}}
				})
			},
			"Failed ModprobeUnsupported", nil,
		},
		"files for modprobe.d": {
			func(r *rig) v1beta1.NodeModuleSpec {
				return order("gadget", r.deliver("d1", gadget), func(s *v1beta1.NodeModuleSpec) { s.Config.Modprobe.ModprobedDir = "/etc/modprobe.d" })
			},
			"Failed Unsupported", nil,
		},
		"empty modprobe arguments are unset": {
			func(r *rig) v1beta1.NodeModuleSpec {
				return order("gadget", r.deliver("d1", gadget), func(s *v1beta1.NodeModuleSpec) {
					s.Config.Modprobe.Args = &v1beta1.ModprobeArgs{}
				})
			},
			"", []string{"finit_module gadget"},
		},
		"order for another kernel": {
			func(r *rig) v1beta1.NodeModuleSpec {
				return order("gadget", r.deliver("d1", gadget), func(s *v1beta1.NodeModuleSpec) { s.Config.KernelVersion = "5.10.0" })
			},
			"Waiting WrongKernel", nil,
		},
		"a plus at the end of the kernel's name does not count": {
			func(r *rig) v1beta1.NodeModuleSpec {
				return order("gadget", r.deliver("d1", gadget), func(s *v1beta1.NodeModuleSpec) { s.Config.KernelVersion += "+" })
			},
			"", []string{"finit_module gadget"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			o := tc.given(r)
			r.pass(o)
			s := r.pass(o)
			same(t, "attempt", tc.then, attempt(s, o.Name))
			same(t, "calls", tc.calls, r.calls())
			same(t, "live", tc.then == "", loadedImage(s, o.Name) != "")
			same(t, "writes", 1, r.writes)
		})
	}
}

func TestFailuresAreRepeatedEverMoreRarely(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV", Log: []string{"gadget: no device"}, Times: 3})
	o := order("gadget", r.deliver("d1", gadget))
	tries := func() int { return len(r.host.Calls()) }
	r.pass(o)
	if m := r.last.Attempts[0].Message; !strings.HasSuffix(m, "\ngadget: no device") {
		t.Errorf("message %q lacks the kernel's line", m)
	}
	for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		before := tries()
		r.clock.Step(pause - time.Second)
		r.pass(o)
		same(t, "tries before the pause is over", before, tries())
		r.clock.Step(time.Second)
		r.pass(o)
		same(t, "tries after it", before+1, tries())
	}
	same(t, "attempt", "", attempt(r.last, "gadget"))
	same(t, "writes", 2, r.writes) // failed, loaded
}

// passOf is a pass that takes a while: it goes by as soon as a call waits.
func (r *rig) passOf(while time.Duration, specs ...v1beta1.NodeModuleSpec) *v1beta1.NodeModulesConfigStatus {
	r.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wait.PollUntilContextTimeout(r.t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
			return r.clock.HasWaiters(), nil
		})
		r.clock.Step(while)
	}()
	defer func() { <-done }()
	return r.pass(specs...)
}

func TestCallThatDoesNotComeBack(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.host.Script("finit_module", "gadget", fake.Fault{Delay: 2 * time.Hour})
	o := order("gadget", r.deliver("d1", gadget))
	s := r.passOf(time.Hour, o)
	same(t, "attempt", "Failed Timeout", attempt(s, "gadget"))
	r.clock.Step(time.Minute)
	same(t, "attempt while it is on its way", "Waiting Timeout", attempt(r.pass(o), "gadget"))
	same(t, "calls", []string{"finit_module gadget timeout"}, r.calls())
	r.clock.Step(2 * time.Hour) // it comes back after all
	same(t, "live", o.Config.ContainerImage, loadedImage(r.pass(o), "gadget"))
	same(t, "calls", []string{"finit_module gadget timeout", "returned gadget"}, r.calls())
}

// TestUnloadOfWhatHasNotReturned: nothing is tried with it, and it is told why. The operator knows
// by Timeout that an agent's pod may not be able to end (docs/design/0044-hung-calls.md).
func TestUnloadOfWhatHasNotReturned(t *testing.T) {
	for _, call := range []string{"finit_module", "delete_module"} {
		t.Run(call, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			d := r.deliver("d1", gadget)
			r.host.Script(call, "gadget", fake.Fault{Delay: 2 * time.Hour, Times: 1})
			if call == "finit_module" {
				r.passOf(time.Hour, order("gadget", d))
			} else {
				r.pass(order("gadget", d))
				same(t, "attempt", "Failed Timeout", attempt(r.passOf(time.Hour, order("gadget", d, absent)), "gadget"))
			}
			r.host.TakeCalls()
			for range 3 {
				r.clock.Step(6 * time.Minute)
				same(t, "attempt while it is on its way", "Waiting Timeout", attempt(r.pass(order("gadget", d, absent)), "gadget"))
			}
			same(t, "calls", []string(nil), r.calls())
			r.clock.Step(2 * time.Hour) // it comes back after all
			same(t, "attempt", "Absent ModuleDeleted", attempt(r.pass(order("gadget", d, absent)), "gadget"))
			same(t, "live", []string(nil), liveNow(r))
		})
	}
}

func TestBuiltInCounts(t *testing.T) {
	r := newRig(t, fake.Options{BuiltIn: []string{"gadget"}})
	o := order("gadget", r.deliver("d1", gadget))
	s := r.pass(o)
	same(t, "built in", &v1beta1.ObservedModule{Delivery: "d1", BuiltIn: true}, s.Modules[0].Observed)
	s = r.pass(order("gadget", o.Delivery, absent))
	same(t, "attempt", "Absent ModuleDeleted", attempt(s, "gadget"))
	same(t, "calls", []string(nil), r.calls())
}

func TestSameBuildIsAdopted(t *testing.T) {
	r := newRig(t, fake.Options{})
	if err := r.host.Insmod(ko(gadget)); err != nil {
		t.Fatal(err)
	}
	s := r.pass(order("gadget", r.deliver("d1", gadget)))
	same(t, "adopted", true, s.Modules[0].Observed.Adopted)
	same(t, "calls", []string{"insmod gadget"}, r.calls())
}

func TestForeignBuildIsNotUnloaded(t *testing.T) {
	r := newRig(t, fake.Options{})
	if err := r.host.Insmod(ko(gadgetV2)); err != nil {
		t.Fatal(err)
	}
	d := r.deliver("d1", gadget)
	r.pass(order("gadget", d))
	s := r.pass(order("gadget", d, absent))
	same(t, "attempt", "Absent ModuleDeleted", attempt(s, "gadget"))
	same(t, "calls", []string{"insmod gadget"}, r.calls())
}

func TestTwoOrdersForOneModule(t *testing.T) {
	named := func(name string) func(*v1beta1.NodeModuleSpec) {
		return func(s *v1beta1.NodeModuleSpec) { s.Name = name }
	}
	t.Run("the same build is shared until nobody needs it", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		d := r.deliver("d1", gadget)
		a, b := order("gadget", d, named("a")), order("gadget", d, named("b"))
		r.pass(a, b)
		s := r.pass(order("gadget", d, named("a"), absent), b)
		same(t, "attempt", "Absent ModuleDeleted", attempt(s, "a"))
		same(t, "calls", []string{"finit_module gadget"}, r.calls())
		r.pass(order("gadget", d, named("b"), absent))
		same(t, "calls", []string{"finit_module gadget", "delete_module gadget"}, r.calls())
	})
	t.Run("another build is a conflict", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		s := r.pass(order("gadget", r.deliver("d1", gadget), named("a")), order("gadget", r.deliver("d2", gadgetV2), named("b")))
		same(t, "attempt", "Failed ModuleConflict", attempt(s, "b"))
		same(t, "calls", []string{"finit_module gadget"}, r.calls())
	})
}

func TestRefusalsNameTheirCause(t *testing.T) {
	param := func(names ...string) (p []kmod.Param) {
		for _, n := range names {
			p = append(p, kmod.Param{Name: n, Type: "charp"})
		}
		return p
	}
	many := param("p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10")
	cases := map[string]struct {
		given  synth.Module
		fault  fake.Fault
		reason string
		says   string
	}{
		"parameters that it may need": {
			synth.Module{Name: "gadget", Params: param("path", "format")}, fake.Fault{Errno: "EINVAL"}, v1beta1.ReasonLoadFailed,
			"The kernel refused gadget (EINVAL): the module's own code, or the kernel, finds something invalid; it has parameters, and may need " +
				"one or refuse a value (path, format): see modprobe.parameters.",
		},
		"too many parameters to name": {
			synth.Module{Name: "gadget", Params: many}, fake.Fault{Errno: "EINVAL"}, v1beta1.ReasonLoadFailed,
			"(p1, p2, p3, p4, p5, p6, p7, p8 and 2 more)",
		},
		"neither parameters nor lines": {
			synth.Module{Name: "gadget"}, fake.Fault{Errno: "EINVAL"}, v1beta1.ReasonLoadFailed,
			"finds something invalid; the kernel printed nothing about it.",
		},
		"parameters of a dependency, which the Module cannot set": {
			synth.Module{Name: "gadget", Depends: []string{"bus"}}, fake.Fault{Errno: "EINVAL"}, v1beta1.ReasonLoadFailed,
			"The kernel refused bus (EINVAL): the module's own code, or the kernel, finds something invalid; the kernel printed nothing about it.",
		},
		"a module that the node lacks": {
			synth.Module{Name: "gadget"}, fake.Fault{Errno: "ENXIO", Log: []string{"gadget: request_module('hmac(sha256)') error."}},
			v1beta1.ReasonMissingDependency,
			"The kernel refused gadget (ENXIO): it asked the kernel for the module hmac(sha256), which the node does not have.\ngadget: " +
				"request_module",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			refused := "gadget"
			if len(tc.given.Depends) > 0 {
				refused = "bus"
			}
			r.host.Script("finit_module", refused, tc.fault)
			s := r.pass(order("gadget", r.deliver("d1", synth.Module{Name: "bus", Params: param("speed")}, tc.given)))
			same(t, "attempt", "Failed "+tc.reason, attempt(s, "gadget"))
			if m := s.Attempts[0].Message; !strings.Contains(m, tc.says) {
				t.Errorf("message %q, want it to say %q", m, tc.says)
			}
		})
	}
}
