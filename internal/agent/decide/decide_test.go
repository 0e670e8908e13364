// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/decide"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
)

const kernel = "6.1.0-1-test"

// ordered are the facts about an order to load gadget that has just come: nothing is held, nothing
// is loaded.
func ordered(change ...func(*observe.Facts)) observe.Facts {
	f := observe.Facts{
		Task: orders.Task{Key: orders.Key{Namespace: "ns", Name: "gadget"}}, Release: kernel, Now: time.Unix(1_800_000_000, 0),
		Order: &v1beta1.NodeModuleSpec{
			Config:   v1beta1.ModuleConfig{KernelVersion: kernel, Modprobe: v1beta1.ModprobeSpec{ModuleName: "gadget"}},
			Delivery: &v1beta1.Delivery{ID: "d1", CarrierUID: "carrier"},
		},
		Journal: &journal.Journal{}, Live: map[string]host.Module{},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func held(f *observe.Facts) { f.Held = true }

func planned(f *observe.Facts) {
	f.Plan = &plan.Plan{Main: "gadget", Steps: []plan.Step{{Name: "gadget", BuildID: "new"}}}
}

// live: a build is in the kernel.
func live(buildID string) func(*observe.Facts) {
	return func(f *observe.Facts) {
		f.Live["gadget"] = host.Module{Name: "gadget", State: host.StateLive, BuildID: buildID}
	}
}

func loaded(delivery, buildID string) func(*observe.Facts) {
	return func(f *observe.Facts) {
		f.Loaded = &journal.Load{
			Config: f.Order.Config, DeliveryID: delivery, Complete: true, Main: "gadget",
			Modules: []journal.Module{{Name: "gadget", BuildID: buildID, Planned: buildID, Ours: true}},
		}
		f.Journal.Loaded = map[orders.Key]*journal.Load{f.Key: f.Loaded}
	}
}

func state(s v1beta1.NodeModuleState) func(*observe.Facts) {
	return func(f *observe.Facts) { f.Order.State = s }
}

func TestNext(t *testing.T) {
	cases := map[string]struct {
		given  observe.Facts
		verb   decide.Verb
		reason string // what is said meanwhile
	}{
		"the carrier may have delivered": {given: ordered(), verb: decide.Import},
		"it has not":                     {given: ordered(func(f *observe.Facts) { f.Looked = true }), verb: decide.Rest},
		"what is held has no plan":       {given: ordered(held), verb: decide.Resolve},
		"what is planned is not live":    {given: ordered(held, planned), verb: decide.Load},
		"the plan is of an earlier pass": {given: ordered(held, planned, func(f *observe.Facts) { f.Unverified = true }), verb: decide.Resolve},
		"the fuse holds it back": {
			given: ordered(held, planned, func(f *observe.Facts) { f.Hold = orders.Waiting(v1beta1.ReasonQuarantined, "x") }),
			verb:  decide.Rest, reason: v1beta1.ReasonQuarantined,
		},
		"the kernel will refuse it": {
			given: ordered(held, planned, func(f *observe.Facts) { f.Plan.Hopeless = orders.Failed(v1beta1.ReasonVermagicMismatch, "x") }),
			verb:  decide.Rest, reason: v1beta1.ReasonVermagicMismatch,
		},
		"it is live":                    {given: ordered(held, planned, live("new"), loaded("d1", "new")), verb: decide.Rest},
		"it went away":                  {given: ordered(held, planned, loaded("d1", "new")), verb: decide.Load},
		"another build of ours is live": {given: ordered(held, planned, live("old"), loaded("d0", "old")), verb: decide.Unload},
		"a stranger's is live": {given: ordered(held, planned, live("old")), verb: decide.Rest,
			reason: v1beta1.ReasonAlreadyLoadedForeign},
		"the same build, delivered anew": {
			given: ordered(held, planned, live("new"), loaded("d0", "new")), verb: decide.Refresh,
		},
		"another kernel runs": {
			given: ordered(func(f *observe.Facts) { f.Release = "5.10.0" }), verb: decide.Rest, reason: v1beta1.ReasonWrongKernel,
		},
		"an order to unload":  {given: ordered(live("old"), loaded("d1", "old"), state(v1beta1.NodeModuleAbsent)), verb: decide.Unload},
		"that is carried out": {given: ordered(loaded("d1", "old"), state(v1beta1.NodeModuleAbsent)), verb: decide.Forget},
		"paused before a load": {given: ordered(held, planned, func(f *observe.Facts) { f.Order.Paused = true }), verb: decide.Rest,
			reason: v1beta1.ReasonPaused},
		"modprobe would read what a pod has written": {
			given: ordered(held, planned, func(f *observe.Facts) {
				f.Modprobe = true
				f.Order.Config.Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{"-d", "/var/lib/kubelet/pods/1/volumes/x"}}
			}),
			verb: decide.Rest, reason: v1beta1.ReasonUnsupported,
		},
		"modprobe would read it to unload": {
			given: ordered(held, planned, func(f *observe.Facts) {
				f.Modprobe = true
				f.Order.Config.Modprobe.Args = &v1beta1.ModprobeArgs{Unload: []string{"-C", "/proc/1/root/x"}}
			}),
			verb: decide.Rest, reason: v1beta1.ReasonUnsupported,
		},
		"modprobe reads the image": {
			given: ordered(held, planned, func(f *observe.Facts) {
				f.Modprobe = true
				f.Order.Config.Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{"-d", "/tmp/opt"}, Unload: []string{"-C", "/dev/null"}}
			}), verb: decide.Load,
		},
		"no order names what is loaded": {
			given: ordered(live("old"), loaded("d1", "old"), func(f *observe.Facts) { f.Order = nil }),
			verb:  decide.Rest, reason: v1beta1.ReasonUnclaimed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := decide.Next(tc.given)
			reason := ""
			if d.Attempt != nil {
				reason = d.Attempt.Reason
			}
			if d.Verb != tc.verb || reason != tc.reason {
				t.Errorf("%s %q, want %s %q", d.Verb, reason, tc.verb, tc.reason)
			}
		})
	}
}

// TestUnloadsComeFirst: they may make room for what is loaded.
func TestUnloadsComeFirst(t *testing.T) {
	key := func(name string) orders.Key { return orders.Key{Namespace: "ns", Name: name} }
	got := decide.Sequence(map[orders.Key]*v1beta1.NodeModuleSpec{
		key("a"): {}, key("c"): {State: v1beta1.NodeModuleAbsent},
	}, map[orders.Key]*journal.Load{key("a"): {}, key("b"): {}})
	if len(got) != 3 || got[0] != key("c") || got[1] != key("a") || got[2] != key("b") {
		t.Errorf("sequence %v", got)
	}
}
