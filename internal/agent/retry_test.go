// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
)

// askedAt asks for another try. Its times are a person's, hours away from the node's clock.
func askedAt(s *v1beta1.NodeModuleSpec, hour int) {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0).Add(time.Duration(hour) * time.Hour))
	s.Retry = &at
}

func TestRetryForgetsThePause(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV", Times: 2})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.pass(o)
	same(t, "tries before", 1, loadsOf(r, "gadget"))
	askedAt(&o, 1)
	r.pass(o)
	same(t, "tries when asked", 2, loadsOf(r, "gadget"))
	r.pass(o)
	r.restart(r.host)
	r.pass(o) // a new agent remembers no pause
	same(t, "live", true, loadedImage(r.last, "gadget") != "")
}

func TestRetryForgetsARefusal(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "EKEYREJECTED", Times: 2})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.clock.Step(time.Hour)
	r.pass(o)
	same(t, "tries in this boot", 1, loadsOf(r, "gadget"))
	askedAt(&o, 1)
	r.pass(o)
	same(t, "tries when asked", 2, loadsOf(r, "gadget"))
	r.clock.Step(time.Hour)
	r.pass(o)
	r.restart(r.host)
	r.pass(o)
	same(t, "tries for the same request, also by the next agent", 2, loadsOf(r, "gadget"))
	askedAt(&o, 2)
	r.pass(o)
	same(t, "live when asked again", true, loadedImage(r.last, "gadget") != "")
}

func TestRetryEndsAQuarantineOncePerRequest(t *testing.T) {
	r := newRig(t, fake.Options{})
	bad := crashingHost{Host: r.host, at: "gadget"}
	o := order("gadget", r.deliver("d1", gadget))
	down := func(what string, then bool) {
		t.Helper()
		if got := r.boot(bad, o); got != then {
			t.Fatalf("%s: the node went down: %v", what, got)
		}
	}
	down("the first load", true)
	down("then it rests", false)
	r.clock.Step(fuse.RetryAfter)
	down("the second", true)
	down("the third is not made", false)
	same(t, "attempt", "Failed Quarantined", attempt(r.last, "gadget"))

	same(t, "a request before the strike", true, strikeOf(r.last, "gadget").Retry == nil)
	askedAt(&o, 1)
	down("when asked", true)
	down("not again for the same request", false)
	same(t, "the request before the strike", true, strikeOf(r.last, "gadget").Retry.Equal(o.Retry))
	same(t, "attempt", "Waiting Quarantined", attempt(r.last, "gadget"))
	askedAt(&o, 2)
	down("when asked again", true)

	bad.at = "" // what took the node down was repaired
	askedAt(&o, 3)
	down("a good load", false)
	same(t, "live", true, loadedImage(r.last, "gadget") != "")
}

// TestRetryOfWhatIsFine touches nothing, and does not wait for a failure to come.
func TestRetryOfWhatIsFine(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.restart(r.host)
	askedAt(&o, 1)
	r.pass(o)
	same(t, "calls", []string{"finit_module gadget"}, r.calls())

	r.host.Reboot("")
	bad := crashingHost{Host: r.host, at: "gadget"}
	if !r.boot(bad, o) || r.boot(bad, o) {
		t.Fatal("the node was to go down once")
	}
	same(t, "attempt", "Waiting Quarantined", attempt(r.last, "gadget"))
}

func TestDamagedMemoryOfRetriesIsSetAside(t *testing.T) {
	r := newRig(t, fake.Options{})
	name := filepath.Join(r.dir, "state", journal.RetriedFile)
	r.file(name, []byte(`{"schema":1,"last":`))
	r.restart(r.host)
	if _, err := os.Stat(name + ".aside"); err != nil {
		t.Error(err)
	}
	o := order("gadget", r.deliver("d1", gadget))
	askedAt(&o, 1)
	r.pass(o)
	same(t, "live", true, loadedImage(r.last, "gadget") != "")
}

func paused(s *v1beta1.NodeModuleSpec) { s.Paused = true }

func TestPausedOrder(t *testing.T) {
	cases := map[string]struct {
		// given happens before the pause; it returns the order that is then paused.
		given func(*rig) v1beta1.NodeModuleSpec
		then  string
		live  bool
	}{
		"nothing is loaded": {
			given: func(r *rig) v1beta1.NodeModuleSpec { return order("gadget", r.deliver("d1", gadget)) },
			then:  "Waiting Paused",
		},
		"what is live stays reported": {
			given: func(r *rig) v1beta1.NodeModuleSpec {
				o := order("gadget", r.deliver("d1", gadget))
				r.pass(o)
				return o
			},
			live: true,
		},
		"what went away is not repaired": {
			given: func(r *rig) v1beta1.NodeModuleSpec {
				o := order("gadget", r.deliver("d1", gadget))
				r.pass(o)
				if err := r.host.Rmmod("gadget"); err != nil {
					r.t.Fatal(err)
				}
				return o
			},
			then: "Waiting Paused",
		},
		"another build does not take its place": {
			given: func(r *rig) v1beta1.NodeModuleSpec {
				r.pass(order("gadget", r.deliver("d1", gadget)))
				return order("gadget", r.deliver("d2", gadgetV2))
			},
			then: "Waiting Paused", live: true,
		},
		"nothing is unloaded": {
			given: func(r *rig) v1beta1.NodeModuleSpec {
				o := order("gadget", r.deliver("d1", gadget))
				r.pass(o)
				absent(&o)
				return o
			},
			then: "Waiting Paused", live: true,
		},
		"what is not there is said to be absent": {
			given: func(r *rig) v1beta1.NodeModuleSpec { return order("gadget", r.deliver("d1", gadget), absent) },
			then:  "Absent ModuleDeleted",
		},
		"a request to try again waits": {
			given: func(r *rig) v1beta1.NodeModuleSpec {
				r.host.Script("finit_module", "gadget", fake.Fault{Errno: "EKEYREJECTED", Times: 1})
				o := order("gadget", r.deliver("d1", gadget))
				r.pass(o)
				askedAt(&o, 1)
				return o
			},
			then: "Waiting Paused",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			o := tc.given(r)
			before := r.calls()
			on := o
			paused(&on)
			for range 3 {
				r.pass(on)
				r.clock.Step(time.Hour)
			}
			r.restart(r.host)
			r.pass(on)
			same(t, "calls while paused", before, r.calls())
			same(t, "attempt", tc.then, attempt(r.last, "gadget"))
			same(t, "reported live", tc.live, loadedImage(r.last, "gadget") != "")

			r.pass(o)
			same(t, "carried out after the pause", o.State != v1beta1.NodeModuleAbsent, r.host.Live()["gadget"] != "")
		})
	}
}
