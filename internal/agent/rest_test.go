// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestAgentRestsWhileNothingHappens: at rest, a glance at the kernel's list of modules is enough,
// for a minute.
func TestAgentRestsWhileNothingHappens(t *testing.T) {
	cases := map[string]struct {
		order func(*v1beta1.NodeModuleSpec)
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
		"a file on the host is to be kept":   {order: func(s *v1beta1.NodeModuleSpec) { s.BlacklistInTree = true }},
		"the load failed and is tried again": {order: func(s *v1beta1.NodeModuleSpec) { s.Config.Modprobe.Parameters = []string{"a=1"} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			o := order("gadget", r.deliver("d1", gadget))
			if tc.order != nil {
				tc.order(&o)
			}
			if len(o.Config.Modprobe.Parameters) > 0 {
				r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV"})
			}
			_, ctx := ktesting.NewTestContext(t)
			r.agent.recorded = &record{Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{o}}}
			for range 2 { // the first loads
				if _, err := r.agent.look(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if tc.given != nil {
				tc.given(r)
			}
			same(t, "rests", tc.rests, r.agent.undisturbed())
		})
	}
}
