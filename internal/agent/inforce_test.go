// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestParametersThatAreNotInForce are told: those of a module that was live before, and those that
// the module lacks.
func TestParametersThatAreNotInForce(t *testing.T) {
	const differ = "Waiting ParametersDiffer"
	cases := map[string]struct {
		live    []string // the parameters with which the host has loaded it; nil: it has not
		ordered []string
		want    string
		lacks   bool // what is ordered is in force nowhere
		says    string
	}{
		"loaded with them":            {ordered: []string{"size=8"}},
		"live with none, none wanted": {live: []string{}},
		"live with the same":          {live: []string{"size=8"}, ordered: []string{"size=0x8"}},
		"live with others": {live: []string{"size=4"}, ordered: []string{"size=8"}, want: differ,
			says: `Module gadget was live before its load, and keeps the parameters it had: size is "4", not "8".`},
		"live, and they do not show": {live: []string{}, ordered: []string{"size=8"}},
		"one that the module lacks": {ordered: []string{"szie=8", "size=8"}, want: differ, lacks: true,
			says: "Module gadget has no parameter szie, and the kernel has ignored it"},
		"one that each module has":    {ordered: []string{"dyndbg=+p"}},
		"a dash for a low line":       {ordered: []string{"low-water=1"}},
		"a long value":                {live: []string{"size=" + strings.Repeat("9", 300)}, ordered: []string{"size=8"}, want: ""},
		"of a live one that lacks it": {live: []string{}, ordered: []string{"szie=8"}, want: differ, lacks: true, says: "has no parameter szie"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			m := gadget
			m.Params = append(m.Params[:1:1], m.Params[0])
			m.Params[1].Name = "low_water"
			if tc.live != nil {
				r.must(r.host.Insmod(ko(m), tc.live...))
			}
			o := order("gadget", r.deliver("d1", m), params(tc.ordered...))
			for range 2 {
				s := r.pass(o)
				same(t, "attempt", tc.want, attempt(s, "gadget"))
				same(t, "live", o.Config.ContainerImage, loadedImage(s, "gadget"))
				if tc.says != "" && !strings.Contains(s.Attempts[0].Message, tc.says) {
					t.Errorf("message %q", s.Attempts[0].Message)
				}
				r.restart(r.host)
			}
			r.must(r.host.Rmmod("gadget")) // it is loaded again, with what is ordered
			s := r.pass(o)
			same(t, "attempt after a repair", tc.lacks, attempt(s, "gadget") == differ)
		})
	}
}

// TestOneModuleWithTwoSettings: two orders that ask for one module with different parameters are a
// conflict for the one that comes later.
func TestOneModuleWithTwoSettings(t *testing.T) {
	called := func(name string) func(*v1beta1.NodeModuleSpec) {
		return func(s *v1beta1.NodeModuleSpec) { s.Name = name }
	}
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	a, b := order("gadget", d, params("size=4"), called("a")), order("gadget", d, params("size=8"), called("b"))

	s := r.pass(a, b)
	same(t, "a", "", attempt(s, "a"))
	same(t, "b", "Failed ModuleConflict", attempt(s, "b"))
	if m := s.Attempts[0].Message; !strings.Contains(m, "Module ns/a asks for gadget with other parameters") {
		t.Errorf("message %q", m)
	}
	same(t, "passed", "4", r.host.Passed("gadget")["size"])

	// What serves is not disturbed, and a change of it has to be one of both.
	a2 := order("gadget", d, params("size=5"), called("a"))
	s = r.pass(order("gadget", d, params("size=4"), called("b")), a)
	same(t, "b, alike", "", attempt(s, "b"))
	s = r.pass(order("gadget", d, params("size=4"), called("b")), a2)
	same(t, "a, changed alone", "Failed ModuleConflict", attempt(s, "a"))
	same(t, "b", "", attempt(s, "b"))
	s = r.pass(a2)
	same(t, "b is unclaimed", "Unclaimed Unclaimed", attempt(s, "b"))
}

// TestAKeptDependencyIsTold: two Modules bring the same module under theirs, and both are upgraded:
// each keeps the old one for the other. A boot brings the new one.
func TestAKeptDependencyIsTold(t *testing.T) {
	bus := func(version string) synth.Module { return synth.Module{Name: "bus_core", Version: version} }
	on := func(name, version string) synth.Module {
		return synth.Module{Name: name, Version: version, Depends: []string{"bus_core"}}
	}
	r := newRig(t, fake.Options{})
	a1, b1 := r.deliver("a1", on("nic", "1"), bus("1")), r.deliver("b1", on("gpu", "1"), bus("1"))
	r.pass(order("nic", a1), order("gpu", b1))
	a2, b2 := r.deliver("a2", on("nic", "2"), bus("2")), r.deliver("b2", on("gpu", "2"), bus("2"))
	now := []v1beta1.NodeModuleSpec{order("nic", a2), order("gpu", b2)}
	r.pass(now...)
	s := r.pass(now...)
	same(t, "live is the old one", buildID(t, bus("1")), r.host.Live()["bus_core"])
	for name, other := range map[string]string{"nic": "ns/gpu", "gpu": "ns/nic"} {
		same(t, name, "Waiting DependencyKept", attempt(s, name))
		for _, a := range s.Attempts {
			want := "bus_core has build " + buildID(t, bus("1")) + " instead of " + buildID(t, bus("2")) + ", and Module " + other + " uses it, too"
			if a.Name == name && !strings.Contains(a.Message, want) {
				t.Errorf("message %q", a.Message)
			}
		}
	}
	r.host.Reboot("")
	r.restart(r.host)
	s = r.pass(now...)
	same(t, "live after a boot", buildID(t, bus("2")), r.host.Live()["bus_core"])
	same(t, "nic", "", attempt(s, "nic"))
	same(t, "gpu", "", attempt(s, "gpu"))
}
