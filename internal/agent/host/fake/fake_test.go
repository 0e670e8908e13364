// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

func load(t *testing.T, h *Host, m synth.Module) error {
	t.Helper()
	if m.Vermagic == "" {
		m.Vermagic = h.Release() + " SMP"
	}
	file, err := fstest.MapFS{"m.ko": &fstest.MapFile{Data: m.Bytes(), Mode: 0o600}}.Open("m.ko")
	if err != nil {
		t.Fatal(err)
	}
	return h.Load(t.Context(), host.LoadRequest{Name: m.Name, File: file, Params: []string{"known=1", "unknown=2"}, For: "ns/m"})
}

func TestKernelRules(t *testing.T) {
	h := New(Options{Release: "6.1.0", BuiltIn: []string{"rtc-core"}})
	steps := []struct {
		what string
		err  error
		want string
	}{
		{"unknown dependency", load(t, h, synth.Module{Name: "top", Depends: []string{"base"}}), "ENOENT"},
		{"base", load(t, h, synth.Module{Name: "base", Depends: []string{"rtc_core"}}), ""},
		{"top", load(t, h, synth.Module{Name: "top", Depends: []string{"base"}}), ""},
		{"twice", load(t, h, synth.Module{Name: "top"}), "EEXIST"},
		{"another kernel", load(t, h, synth.Module{Name: "odd", Vermagic: "5.4.0 SMP"}), "ENOEXEC"},
		{"another kernel, but with CRCs", load(t, h, synth.Module{Name: "crc", Vermagic: "5.4.0 SMP", ModVersions: true}), ""},
		{"held", h.Unload(t.Context(), host.UnloadRequest{Name: "base"}), "EAGAIN"},
		{"not there", h.Unload(t.Context(), host.UnloadRequest{Name: "nothing"}), "ENOENT"},
		{"top goes", h.Unload(t.Context(), host.UnloadRequest{Name: "top"}), ""},
		{"base goes", h.Unload(t.Context(), host.UnloadRequest{Name: "base"}), ""},
	}
	var results []string
	for _, s := range steps {
		var refused *host.CallError
		got := ""
		if errors.As(s.err, &refused) {
			got = refused.Errno
		}
		if got != s.want || (s.err != nil && got == "") {
			t.Errorf("%s: %v, want %q", s.what, s.err, s.want)
		}
		results = append(results, s.want)
	}
	var journal []string
	for _, c := range h.Calls() {
		journal = append(journal, c.Result)
		if c.For == "" && c.Call == "finit_module" {
			t.Errorf("%s: the journal does not say who asked", c.Module)
		}
	}
	if diff := cmp.Diff(results, journal); diff != "" {
		t.Error(diff)
	}
}

func TestUsers(t *testing.T) {
	h := New(Options{Release: "6.1.0"})
	pod := host.User{Kind: host.UserProcess, Name: "worker", PID: 7, Pod: "team/job", Device: "/dev/base0"}
	for _, err := range []error{
		load(t, h, synth.Module{Name: "base"}), load(t, h, synth.Module{Name: "top", Depends: []string{"base"}}),
		h.Hold("base"), h.HoldBy("base", pod),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := h.Users("base")
	if diff := cmp.Diff([]host.User{{Kind: host.UserModule, Name: "top"}, pod}, got); err != nil || diff != "" {
		t.Errorf("error %v, users (-want +got):\n%s", err, diff)
	}
	if m, _, err := h.Module("base"); err != nil || m.RefCount != 3 {
		t.Errorf("reference count %d, error %v", m.RefCount, err)
	}
	for range 3 { // one more than there are
		if err := h.Unhold("base"); err != nil {
			t.Fatal(err)
		}
	}
	if m, _, err := h.Module("base"); err != nil || m.RefCount != 1 {
		t.Errorf("reference count %d after all uses ended, error %v", m.RefCount, err)
	}
	if got, err := h.Users("nothing"); err != nil || len(got) > 0 {
		t.Errorf("users of a module that is not loaded: %v, error %v", got, err)
	}
}

func TestRebootEmptiesTheKernel(t *testing.T) {
	h := New(Options{Release: "6.1.0"})
	if err := load(t, h, synth.Module{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	before, _ := h.BootID()
	h.Reboot("6.12.0")
	after, _ := h.BootID()
	if before == after || h.Release() != "6.12.0" || len(h.Live()) != 0 || h.Boots() != 2 {
		t.Errorf("boot %s then %s, release %s, live %v, boots %d", before, after, h.Release(), h.Live(), h.Boots())
	}
}

func TestWatchersHearOfEachChange(t *testing.T) {
	h := New(Options{Release: "6.1.0"})
	changes, err := h.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := load(t, h, synth.Module{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	<-changes
	if err := h.Rmmod("m"); err != nil {
		t.Fatal(err)
	}
	<-changes
}
