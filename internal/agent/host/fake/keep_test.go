// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"testing"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestKeep: a kernel goes on in another process as if nothing had been.
func TestKeep(t *testing.T) {
	low := synth.Module{Name: "low", Vermagic: "6.1.0 SMP", BuildID: "0a"}
	high := synth.Module{
		Name: "high", Vermagic: "6.1.0 SMP", BuildID: "0b", Depends: []string{"low"}, Params: []kmod.Param{{Name: "size", Type: "uint"}},
	}
	before := New(Options{Release: "6.1.0"})
	before.Reboot("")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(before.Insmod(low.Bytes()))
	must(before.Insmod(high.Bytes(), "size=4", "szie=8"))
	must(before.Hold("high"))
	before.Put("/dev/high0", "")
	before.Unplug("other")

	data, err := before.Keep()
	must(err)
	after := New(Options{Release: "6.12.0"})
	must(after.Resume(data))

	boot := func(h *Host) string {
		id, err := h.BootID()
		must(err)
		return id
	}
	modules := func(h *Host) map[string]host.Module {
		all := map[string]host.Module{}
		for name := range h.Live() {
			m, _, err := h.Module(name)
			must(err)
			all[name] = m
		}
		return all
	}
	same(t, "release", "6.1.0", after.Release())
	same(t, "boot", boot(before), boot(after))
	same(t, "boots", 2, after.Boots())
	same(t, "taint", before.Taint(), after.Taint())
	same(t, "modules", modules(before), modules(after))
	same(t, "passed", before.Passed("high"), after.Passed("high"))
	same(t, "calls", before.Calls(), after.Calls())
	found, _ := after.Probe(host.Probe{DeviceNode: "/dev/high0"})
	same(t, "device node", true, found)
	same(t, "a held module", "EAGAIN", errnoOf(after.Rmmod("high")))
	must(after.Unhold("high"))
	same(t, "what another needs", "EAGAIN", errnoOf(after.Rmmod("low")))
	same(t, "a module without its device", "ENODEV",
		errnoOf(after.Insmod(synth.Module{Name: "other", Vermagic: "6.1.0 SMP"}.Bytes())))
	must(after.Rmmod("high"))
	must(after.Rmmod("low"))

	before.Script("finit_module", "low", Fault{Errno: "EIO"})
	if _, err := before.Keep(); err == nil {
		t.Error("a scripted fault would be lost without a word")
	}
}
