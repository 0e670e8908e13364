// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// errnoOf is the kernel's refusal; "" when it did as it was told. Any other error is itself.
func errnoOf(err error) string {
	var refused *host.CallError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return refused.Errno
	}
	return err.Error()
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func newOwner(t *testing.T) *synth.Owner {
	t.Helper()
	o, err := synth.NewOwner("owner")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSignatures has what Debian's kernel 6.1 does, tried in a virtual machine.
func TestSignatures(t *testing.T) {
	ours, other := newOwner(t), newOwner(t)
	keys := []*x509.Certificate{ours.Certificate}
	sign := func(o *synth.Owner, file []byte, by synth.SignOptions) []byte {
		signed, err := o.Sign(file, by)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	file := synth.Module{Name: "m", Vermagic: "6.1.0 SMP"}.Bytes()
	damaged := synth.AppendSignature(file, []byte("junk"))
	byID := synth.SignOptions{BySubjectKeyID: true}
	cases := map[string]struct {
		given   Security
		file    []byte
		refused string
		taint   string
	}{
		"enforced, ours":         {Security{Enforced: true, Keyring: keys}, sign(ours, file, synth.SignOptions{}), "", "O"},
		"enforced, ours by ID":   {Security{Enforced: true, Keyring: keys}, sign(ours, file, byID), "", "O"},
		"enforced, another's":    {Security{Enforced: true, Keyring: keys}, sign(other, file, synth.SignOptions{}), "EKEYREJECTED", ""},
		"enforced, another's ID": {Security{Enforced: true, Keyring: keys}, sign(other, file, byID), "EKEYREJECTED", ""},
		"enforced, unsigned":     {Security{Enforced: true, Keyring: keys}, file, "EKEYREJECTED", ""},
		"enforced, no keys":      {Security{Enforced: true}, sign(ours, file, synth.SignOptions{}), "EKEYREJECTED", ""},
		"locked down, ours":      {Security{LockedDown: true, Keyring: keys}, sign(ours, file, synth.SignOptions{}), "", "O"},
		"locked down, unsigned":  {Security{LockedDown: true, Keyring: keys}, file, "EPERM", ""},
		"locked down, another's": {Security{LockedDown: true, Keyring: keys}, sign(other, file, synth.SignOptions{}), "EPERM", ""},
		"nothing, another's":     {Security{Keyring: keys}, sign(other, file, synth.SignOptions{}), "", "OE"},
		"nothing, unsigned":      {Security{Keyring: keys}, file, "", "OE"},
		"nothing, damaged":       {Security{Keyring: keys}, damaged, "EBADMSG", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := New(Options{Release: "6.1.0"})
			h.Secure(tc.given)
			h.Reboot("") // until then nothing is demanded
			same(t, "errno", tc.refused, errnoOf(h.Insmod(tc.file)))
			m, _, err := h.Module("m")
			if err != nil {
				t.Fatal(err)
			}
			same(t, "the module's taint", tc.taint, m.Taint)
			same(t, "the kernel's taint", tc.taint, h.Taint())
		})
	}
}

// TestKernelTaintStays until the next boot, also that of a module which was refused after the
// kernel had looked at it.
func TestKernelTaintStays(t *testing.T) {
	h := New(Options{Release: "6.1.0"})
	same(t, "fresh", "", h.Taint())
	same(t, "load", "ENOENT", errnoOf(load(t, h, synth.Module{Name: "a", Depends: []string{"none"}})))
	same(t, "after a refusal", "OE", h.Taint())
	if err := errors.Join(load(t, h, synth.Module{Name: "b", License: "Proprietary"}), h.Rmmod("b")); err != nil {
		t.Fatal(err)
	}
	same(t, "after an unload", "POE", h.Taint())
	h.Reboot("")
	same(t, "after a boot", "", h.Taint())
}

// TestUnloadRules follows delete_module in kernel/module/main.c.
func TestUnloadRules(t *testing.T) {
	h := New(Options{Release: "6.1.0", Permanent: []string{"stays"}})
	for _, m := range []synth.Module{{Name: "base"}, {Name: "top", Depends: []string{"base"}}, {Name: "stays"}, {Name: "held"}} {
		if err := load(t, h, m); err != nil {
			t.Fatal(err)
		}
	}
	h.Script("finit_module", "stuck", Fault{Oops: true})
	if err := load(t, h, synth.Module{Name: "stuck", Depends: []string{"held"}}); err == nil {
		t.Fatal("an oops went by")
	}
	if err := h.Hold("top"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"base": "EAGAIN", "top": "EAGAIN", "stays": "EBUSY", "stuck": "EBUSY", "none": "ENOENT",
		"held": "EAGAIN", // what is stuck in its init holds what it needs
	} {
		same(t, name, want, errnoOf(h.Unload(t.Context(), host.UnloadRequest{Name: name})))
	}
	if m, _, err := h.Module("stuck"); err != nil || m.State != host.StateComing || m.RefCount != 1 {
		t.Errorf("%+v, error %v", m, err)
	}
	h.DisableModules()
	same(t, "disabled", "EPERM", errnoOf(h.Unload(t.Context(), host.UnloadRequest{Name: "top"})))
}

// TestOopsKillsTheCall: no answer, and the module is stuck until the next boot, for itself and for
// who needs it.
func TestOopsKillsTheCall(t *testing.T) {
	h := New(Options{Release: "6.1.0"})
	h.Script("finit_module", "bad", Fault{Oops: true, Times: 1})
	var refused *host.CallError
	if err := load(t, h, synth.Module{Name: "bad"}); err == nil || errors.As(err, &refused) || errors.Is(err, host.ErrTimeout) {
		t.Errorf("error %v", err)
	}
	states, err := h.Modules()
	same(t, "states", map[string]host.State{"bad": host.StateComing}, states)
	same(t, "taint", "DOE", h.Taint())
	if again := load(t, h, synth.Module{Name: "bad"}); err != nil || !errors.Is(again, host.ErrTimeout) {
		t.Errorf("a second load ends with %v, error %v", again, err)
	}
	same(t, "who needs it", "EBUSY", errnoOf(load(t, h, synth.Module{Name: "top", Depends: []string{"bad"}})))
	h.Reboot("")
	same(t, "after a boot", "", errnoOf(load(t, h, synth.Module{Name: "bad"})))
	var results []string
	for _, c := range h.Calls() {
		results = append(results, c.Result)
	}
	same(t, "journal", []string{"oops", "timeout", "EBUSY", "", ""}, results)
}

// TestPanicTakesTheCallerDown, and leaves a dump that names the module, or none.
func TestPanicTakesTheCallerDown(t *testing.T) {
	for _, dump := range []bool{true, false} {
		died := 0
		h := New(Options{Release: "6.1.0", Died: func() { died++ }})
		before, _ := h.BootID()
		h.Script("finit_module", "bad", Fault{Panic: true, Dump: dump})
		_ = load(t, h, synth.Module{Name: "bad"}) // the caller is no more
		after, _ := h.BootID()
		if died != 1 || before == after || len(h.Live()) > 0 || h.Calls()[0].BootID != before {
			t.Errorf("died %d times; boot %s, then %s; live %v; calls %+v", died, before, after, h.Live(), h.Calls())
		}
		dumps, err := h.Dumps()
		var culprits []string
		for _, d := range dumps {
			culprits = append(culprits, fuse.Culprits(d.Text)...)
		}
		if err != nil || (len(culprits) == 1 && culprits[0] == "bad") != dump || len(culprits) > 1 {
			t.Errorf("with a dump %t: culprits %v, error %v", dump, culprits, err)
		}
	}
}

// steps lets time pass as soon as a call waits for it.
func steps(t *testing.T, c *clocktesting.FakeClock, by time.Duration) {
	go func() {
		_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
			return c.HasWaiters(), nil
		})
		c.Step(by)
	}()
}

func TestSlowCallsReturnLater(t *testing.T) {
	cases := map[string]struct {
		errno  string
		unload bool
		during host.State
		then   string // state after it has returned; "" gone
	}{
		"a load that works":    {"", false, host.StateComing, "live"},
		"a load that fails":    {"EIO", false, host.StateComing, ""},
		"an unload that works": {"", true, host.StateGoing, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
			h := New(Options{Release: "6.1.0", Clock: c, Deadline: time.Minute})
			call := func() error { return load(t, h, synth.Module{Name: "slow"}) }
			if tc.unload {
				if err := call(); err != nil {
					t.Fatal(err)
				}
				call = func() error { return h.Unload(t.Context(), host.UnloadRequest{Name: "slow"}) }
			}
			h.Script(map[bool]string{false: "finit_module", true: "delete_module"}[tc.unload], "slow", Fault{Delay: time.Hour, Errno: tc.errno})
			steps(t, c, time.Minute)
			if err := call(); !errors.Is(err, host.ErrTimeout) {
				t.Fatalf("error %v", err)
			}
			state := func() string {
				states, err := h.Modules()
				if err != nil {
					t.Fatal(err)
				}
				return string(states["slow"])
			}
			same(t, "left behind", string(tc.during), state())
			c.Step(time.Hour - 2*time.Minute)
			same(t, "still", string(tc.during), state())
			c.Step(time.Minute)
			same(t, "returned", tc.then, state())
			calls := h.Calls()
			same(t, "journal", "returned "+tc.errno, calls[len(calls)-1].Call+" "+calls[len(calls)-1].Result)
		})
	}
}

func TestDeviceThatIsNotThere(t *testing.T) {
	h := New(Options{Release: "6.1.0"})
	h.Unplug("nic-driver")
	same(t, "without", "ENODEV", errnoOf(load(t, h, synth.Module{Name: "nic_driver"})))
	h.Reboot("")
	same(t, "after a boot", "ENODEV", errnoOf(load(t, h, synth.Module{Name: "nic_driver"})))
	same(t, "live", 0, len(h.Live()))
	h.Plug("nic_driver")
	same(t, "with", "", errnoOf(load(t, h, synth.Module{Name: "nic_driver"})))
}
