// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestAgentRestsWhileNothingHappens: at rest, a glance at the kernel's list of modules is enough,
// for a minute, and while a carrier is awaited one at its output, too.
func TestAgentRestsWhileNothingHappens(t *testing.T) {
	awaited := v1beta1.Delivery{ID: "d2", CarrierUID: uidOf("d2")}
	awaits := func(s *v1beta1.NodeModuleSpec) { s.Delivery = &awaited }
	awaitsNext := func(s *v1beta1.NodeModuleSpec) { s.Next = &awaited }
	delivers := func(r *rig) { r.deliver(awaited.ID, gadget) }
	cases := map[string]struct {
		order func(*v1beta1.NodeModuleSpec)
		// fails is how often a load has failed.
		fails int
		given func(r *rig)
		rests bool
	}{
		"nothing happens":        {rests: true},
		"for less than a minute": {given: func(r *rig) { r.clock.Step(59 * time.Second) }, rests: true},
		"for a minute":           {given: func(r *rig) { r.clock.Step(time.Minute) }},
		"its module is gone": {given: func(r *rig) {
			if err := r.host.Rmmod("gadget"); err != nil {
				r.t.Fatal(err)
			}
		}},
		"another module came": {given: func(r *rig) {
			if err := r.host.Insmod(ko(synth.Module{Name: "stranger"})); err != nil {
				r.t.Fatal(err)
			}
		}},
		"a file on the host is to be kept": {order: func(s *v1beta1.NodeModuleSpec) { s.BlacklistInTree = true }},
		"its carrier has not delivered":    {order: awaits, rests: true},
		"its carrier has delivered":        {order: awaits, given: delivers},
		"its carrier has failed": {order: awaits, given: func(r *rig) {
			r.output(awaited.CarrierUID, manifest.ErrorFile, []byte("{}"))
		}},
		"the next order's carrier has not delivered": {order: awaitsNext, rests: true},
		"the next order's carrier has delivered":     {order: awaitsNext, given: delivers},
		"no pods directory can be opened": {order: awaits, given: func(r *rig) {
			if err := os.RemoveAll(filepath.Join(r.dir, "pods")); err != nil {
				r.t.Fatal(err)
			}
		}},
		"another try is not due": {fails: 3, given: func(r *rig) { r.clock.Step(19 * time.Second) }, rests: true},
		"another try is due":     {fails: 3, given: func(r *rig) { r.clock.Step(20 * time.Second) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			o := order("gadget", r.deliver("d1", gadget))
			if tc.order != nil {
				tc.order(&o)
			}
			_, ctx := ktesting.NewTestContext(t)
			r.agent.recorded = &record{Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{o}}}
			for i := range max(tc.fails, 2) { // the first loads
				if i < tc.fails {
					r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV"})
				}
				next, err := r.agent.look(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if i+1 < tc.fails {
					r.clock.Step(next)
				}
			}
			if tc.given != nil {
				tc.given(r)
			}
			same(t, "rests", tc.rests, r.agent.undisturbed())
		})
	}
}

// TestATryIsNotSleptThrough: at the last glance before a try is due, the next look is at that time.
func TestATryIsNotSleptThrough(t *testing.T) {
	r := newRig(t, fake.Options{})
	_, ctx := ktesting.NewTestContext(t)
	o := order("gadget", r.deliver("d1", gadget))
	r.agent.recorded = &record{Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{o}}}
	for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 0} {
		r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV"})
		if _, err := r.agent.look(ctx); err != nil {
			t.Fatal(err)
		}
		r.clock.Step(pause)
	}
	r.clock.Step(19 * time.Second)
	same(t, "rests", true, r.agent.undisturbed())
	same(t, "the next look", time.Second, r.agent.glance())
}
