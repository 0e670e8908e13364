// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
)

// TestWhenALoadBeganIsTold: each load has its own time, which whatever uses the kernel module is
// compared with; what was live before us, or stays live, has none or keeps it.
func TestWhenALoadBeganIsTold(t *testing.T) {
	cases := map[string]struct {
		// given is what happens an hour after the first load.
		given func(*rig, *v1beta1.NodeModuleSpec)
		// foreign: the same build was live before the agent came.
		foreign bool
		then    time.Duration
	}{
		"nothing happens":          {given: func(*rig, *v1beta1.NodeModuleSpec) {}},
		"the agent starts again":   {given: func(r *rig, _ *v1beta1.NodeModuleSpec) { r.restart(r.host) }},
		"the agent forgets it":     {given: func(r *rig, _ *v1beta1.NodeModuleSpec) { r.forgetful() }},
		"another image, one build": {given: func(r *rig, o *v1beta1.NodeModuleSpec) { *o = order("gadget", r.deliver("d2", gadget)) }},
		"another build": {given: func(r *rig, o *v1beta1.NodeModuleSpec) { *o = order("gadget", r.deliver("d2", gadgetV2)) },
			then: time.Hour},
		"other parameters": {given: func(_ *rig, o *v1beta1.NodeModuleSpec) { params("a=1")(o) }, then: time.Hour},
		"drift": {given: func(r *rig, _ *v1beta1.NodeModuleSpec) {
			if err := r.host.Rmmod("gadget"); err != nil {
				r.t.Fatal(err)
			}
		}, then: time.Hour},
		"a boot":          {given: func(r *rig, _ *v1beta1.NodeModuleSpec) { r.host.Reboot(""); r.restart(r.host) }, then: time.Hour},
		"it was there":    {given: func(*rig, *v1beta1.NodeModuleSpec) {}, foreign: true, then: -1},
		"it was replaced": {given: func(_ *rig, o *v1beta1.NodeModuleSpec) { params("a=1")(o) }, foreign: true, then: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			if tc.foreign {
				if err := r.host.Insmod(ko(gadget)); err != nil {
					t.Fatal(err)
				}
			}
			first := r.clock.Now()
			o := order("gadget", r.deliver("d1", gadget))
			r.pass(o)
			r.clock.Step(time.Hour)
			tc.given(r, &o)
			s := r.pass(o)
			if len(s.Modules) != 1 || loadedImage(s, "gadget") != o.Config.ContainerImage {
				t.Fatalf("live: %+v, attempt %q", s.Modules, attempt(s, "gadget"))
			}
			began := s.Modules[0].Observed.LoadBegan
			switch {
			case tc.then < 0 && began != nil:
				t.Errorf("nothing was loaded, and the load began at %s", began)
			case tc.then >= 0 && (began == nil || !began.Time.Equal(first.Add(tc.then))):
				t.Errorf("the load began at %v, want %s after the first at %s", began, tc.then, first)
			}
		})
	}
}

// forgetful starts the agent without its journal.
func (r *rig) forgetful() {
	r.t.Helper()
	if err := os.RemoveAll(filepath.Join(r.dir, "state")); err != nil {
		r.t.Fatal(err)
	}
	r.restart(r.host)
}
