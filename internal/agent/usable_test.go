// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/observe"
)

// readyWhen adds checks to an order.
func readyWhen(checks ...v1beta1.ReadyCheck) func(*v1beta1.NodeModuleSpec) {
	return func(s *v1beta1.NodeModuleSpec) { s.ReadyWhen = checks }
}

var (
	needsNode = v1beta1.ReadyCheck{DeviceNode: "/dev/gadget*"}
	needsLink = v1beta1.ReadyCheck{Sysfs: &v1beta1.SysfsCheck{Path: "/sys/class/gadget/g0/state", Value: "up"}}
)

// TestLiveIsNotReadyUntilTheChecksPass: what the kernel holds is reported as it is; that it cannot
// be used yet, or any more, beside it.
func TestLiveIsNotReadyUntilTheChecksPass(t *testing.T) {
	const notUsable = "Waiting NotUsable"
	cases := map[string]struct {
		checks []v1beta1.ReadyCheck
		given  func(h *fake.Host)
		then   string
		words  string
	}{
		"no checks":           {},
		"no such device node": {checks: []v1beta1.ReadyCheck{needsNode}, then: notUsable, words: "device node /dev/gadget*"},
		"a device node":       {checks: []v1beta1.ReadyCheck{needsNode}, given: func(h *fake.Host) { h.Put("/dev/gadget3", "") }},
		"no such file": {checks: []v1beta1.ReadyCheck{needsLink}, then: notUsable,
			words: `/sys/class/gadget/g0/state with the value "up"`},
		"another value": {checks: []v1beta1.ReadyCheck{needsLink},
			given: func(h *fake.Host) { h.Put("/sys/class/gadget/g0/state", "down") }, then: notUsable,
			words: "\n/sys/class/gadget/g0/state holds down"},
		"the value": {checks: []v1beta1.ReadyCheck{needsLink},
			given: func(h *fake.Host) { h.Put("/sys/class/gadget/g0/state", "up\n") }},
		"one of two": {checks: []v1beta1.ReadyCheck{needsNode, needsLink}, given: func(h *fake.Host) { h.Put("/dev/gadget0", "") },
			then: notUsable, words: "/sys/class/gadget"},
		"what is not for a node": {checks: []v1beta1.ReadyCheck{{Command: []string{"true"}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			if tc.given != nil {
				tc.given(r.host)
			}
			o := order("gadget", r.deliver("d1", gadget), readyWhen(tc.checks...))
			s := r.pass(o)
			same(t, "attempt", tc.then, attempt(s, "gadget"))
			same(t, "live", o.Config.ContainerImage, loadedImage(s, "gadget"))
			same(t, "unusable", tc.then != "", s.Modules[0].Observed.Unusable)
			if tc.then != "" && !strings.Contains(s.Attempts[0].Message, tc.words) {
				t.Errorf("message %q does not say %q", s.Attempts[0].Message, tc.words)
			}
			r.pass(o)
			same(t, "writes", 1, r.writes)
		})
	}
}

func TestReadinessComesAndGoesWithoutAReload(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	same(t, "without checks", "", attempt(r.pass(o), "gadget"))
	o.ReadyWhen = []v1beta1.ReadyCheck{needsLink}
	same(t, "a check is asked for", "Waiting NotUsable", attempt(r.pass(o), "gadget"))
	for _, value := range []string{"down", "sleeping", "down"} {
		r.host.Put("/sys/class/gadget/g0/state", value)
		r.pass(o)
	}
	same(t, "writes while it fails", 2, r.writes)
	r.host.Put("/sys/class/gadget/g0/state", "up")
	same(t, "it passes", "", attempt(r.pass(o), "gadget"))
	same(t, "and is said to", false, r.last.Modules[0].Observed.Unusable)
	r.host.Take("/sys/class/gadget/g0/state")
	same(t, "it fails again", "Waiting NotUsable", attempt(r.pass(o), "gadget"))
	r.restart(r.host)
	same(t, "with a new agent", "Waiting NotUsable", attempt(r.pass(o), "gadget"))
	same(t, "writes", 4, r.writes)
	same(t, "calls", []string{"finit_module gadget"}, r.calls())
}

// TestWaitingForAnotherBuildDoesNotMakeReady: what is live under an order that waits is still not
// ready.
func TestWaitingForAnotherBuildDoesNotMakeReady(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget), readyWhen(needsNode))
	r.pass(o)
	o.Delivery = &v1beta1.Delivery{ID: "d2", CarrierUID: uidOf("d2")} // the same image, built again
	s := r.pass(o)
	same(t, "unusable", true, s.Modules[0].Observed.Unusable)
	same(t, "attempt", "Waiting NotUsable", attempt(s, "gadget"))
	o.Paused = true
	same(t, "unusable while paused", true, r.pass(o).Modules[0].Observed.Unusable)
	same(t, "gone", "Absent ModuleDeleted", attempt(r.pass(order("gadget", o.Delivery, absent, readyWhen(needsNode))), "gadget"))
}

// TestChecksAreMadeAgainSoon: nothing tells of a change, so the agent looks: at once at first, and
// within 15 s at any time.
func TestChecksAreMadeAgainSoon(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget), readyWhen(needsNode))
	look := func() time.Duration {
		t.Helper()
		r.agent.recorded = &record{Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{o}}}
		next, err := r.agent.look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	look()
	same(t, "at first", observe.UnusableSoon, look())
	r.clock.Step(20 * time.Second)
	same(t, "later", 2*time.Second, look())
	r.clock.Step(time.Hour)
	same(t, "in the end", observe.UnusableLong, look())
	same(t, "rests while nothing changes", true, r.agent.undisturbed())
	same(t, "pause of a glance", observe.UnusableLong, r.agent.resync())
	r.host.Put("/dev/gadget0", "")
	same(t, "sees the change", false, r.agent.undisturbed())
	same(t, "usable", observe.UsableAgain, look())
	r.host.Take("/dev/gadget0")
	same(t, "sees it go", false, r.agent.undisturbed())
	same(t, "begins anew", observe.UnusableSoon, look())
}

// TestTheCheckThatFailsNowIsNamed: where the one that failed passes and the next fails, the status
// says so at the next look.
func TestTheCheckThatFailsNowIsNamed(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget), readyWhen(needsNode, needsLink))
	r.agent.recorded = &record{Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{o}}}
	for range 2 { // the first loads, the second finds nothing to do
		if _, err := r.agent.look(ctx); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "rests while the same check fails", true, r.agent.undisturbed())
	r.host.Put("/dev/gadget0", "")
	same(t, "sees that another one fails", false, r.agent.undisturbed())
	if m := r.pass(o).Attempts[0].Message; !strings.Contains(m, "/sys/class/gadget/g0/state") {
		t.Errorf("message %q does not name it", m)
	}
}
