// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/fuse"
)

// Dumps that kernels wrote; testdata/README.md says how.
func TestCulpritsOfRealDumps(t *testing.T) {
	want := map[string][]string{
		"null-6.1.txt": {"fusecrash"}, "panic-6.12.txt": {"fusecrash"}, "bug-6.12.txt": {"fusecrash"},
		"warn-6.12.txt": nil, "warn-panic-6.12.txt": {"fusecrash"}, "timer-6.1.txt": {"fusecrash"},
		"memset-6.12.txt": {"fusecrash"}, "jump-6.1.txt": {"fusecrash"}, "softlockup-6.12.txt": {"fusecrash"},
		"sysrq-6.1.txt": nil,
	}
	got := map[string][]string{}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		dump, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got[filepath.Base(name)] = fuse.Culprits(string(dump))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A dump holds the tail of the log: wherever it was cut, nobody else is named, and whoever is named
// by what comes last still is.
func TestCulpritsOfTruncatedDumps(t *testing.T) {
	for _, name := range []string{"null-6.1.txt", "bug-6.12.txt", "timer-6.1.txt", "sysrq-6.1.txt"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		dump := string(data)
		place := strings.LastIndex(dump[:max(0, strings.LastIndex(dump, "RIP: 0010:"))], "\n") + 1
		for cut := 0; cut < len(dump); cut += 5 {
			got := fuse.Culprits(dump[cut:])
			if len(got) > 1 || len(got) == 1 && got[0] != "fusecrash" {
				t.Fatalf("%s from byte %d: %v", name, cut, got)
			}
			if want := name != "sysrq-6.1.txt" && cut <= place; want && len(got) == 0 {
				t.Fatalf("%s from byte %d: nobody, though the last place is in it", name, cut)
			}
		}
	}
}

func TestCulprits(t *testing.T) {
	tests := map[string]struct {
		given string
		then  []string
	}{
		"nothing": {},
		"quiet log": {given: `<6>[    1.000000] drv: loading out-of-tree module taints kernel.
<6>[    1.000001] drv: codec [#1] at 0x10`},
		"arm64": {given: `<1>[  9.1] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008
<0>[  9.2] Internal error: Oops: 0000000096000045 [#1] SMP
<4>[  9.2] Modules linked in: drv(OE+) other(E)
<4>[  9.2] pc : drv_init+0x18/0x1000 [drv]
<4>[  9.2] lr : do_one_initcall+0x50/0x300
<4>[  9.2] Call trace:
<4>[  9.2]  drv_init+0x18/0x1000 [drv]
<4>[  9.2] ---[ end trace 0000000000000000 ]---`, then: []string{"drv"}},
		"arm64, in the kernel's own function": {given: `Internal error: Oops: 0000000096000045 [#1] SMP
pc : memcpy+0x18/0x1000
lr : lower+0x50/0x300 [wrong]
Call trace:
 memcpy+0x18/0x1000
 drv_init+0x18/0x1000 [drv]
 do_one_initcall+0x50/0x300`, then: []string{"drv"}},
		"arm64, an interrupt's fault is not the fault of what it interrupted": {given: `Internal error: Oops: 0000000096000045 [#1] SMP
Modules linked in: drv
pc : run_timer+0x18/0x1000
Call trace:
 run_timer+0x18/0x1000
 el1h_64_irq+0x64/0x68
 drv_init+0x18/0x1000 [drv]`},
		"arm": {given: `Internal error: Oops - undefined instruction: 0 [#1] ARM
Modules linked in: drv(O+)
PC is at drv_probe+0x0/0x1f0 [drv]
LR is at 0x1
pc : [<bf02bec0>]    lr : [<00000001>]    psr: 000001d1`, then: []string{"drv"}},
		"arm, panic with a trace of addresses": {given: `Kernel panic - not syncing: drv
[<80014428>] (unwind_backtrace+0x0/0xf8) from [<803643a8>] (panic+0x84/0x1dc)
[<bf014428>] (drv_init+0x10/0xf8 [drv]) from [<803643a8>] (do_one_initcall+0x84/0x1dc)`, then: []string{"drv"}},
		"riscv": {given: `Oops [#1]
Modules linked in: drv(O+)
epc : drv_init+0x10/0x1000 [drv]
 ra : do_one_initcall+0x5a/0x1d4`, then: []string{"drv"}},
		"powerpc": {given: `Oops: Kernel access of bad area, sig: 11 [#1]
LE PAGE_SIZE=64K MMU=Radix SMP NR_CPUS=2048 NUMA pSeries
Modules linked in: drv(OE+)
NIP:  c008000000f30040 LR: c0000000000121b0 CTR: c008000000f30008
NIP [c008000000f30040] drv_init+0x38/0x1000 [drv]
LR [c0000000000121b0] do_one_initcall+0x60/0x2c0`, then: []string{"drv"}},
		"powerpc, a guess is no frame": {given: `Oops: Kernel access of bad area, sig: 11 [#1]
NIP [c000000000ac0ce8] strlen+0x18/0xf0
Call Trace:
[c000003fdc18bc80] [c000000000159400] before+0x160/0x5f0 [guess] (unreliable)
[c000003fdc18bd40] [c000000000150aec] drv_init+0x13c/0x310 [drv]`, then: []string{"drv"}},
		"s390": {given: `Oops: 0004 ilc:3 [#1] SMP
Modules linked in: drv(OE+)
Krnl PSW : 0704c00180000000 000003ff800b2042 (drv_init+0x42/0x1000 [drv])`, then: []string{"drv"}},
		"s390, illegal operation": {given: `illegal operation: 0001 ilc:1 [#1] SMP
Krnl PSW : 0704c00180000000 000003ff800b2042 (0x2)
Call Trace:
 [<000003ff800b203a>] drv_init+0x3a/0x1000 [drv]
([<000003ff800b2032>] guess+0x32/0x1000 [drv2])`, then: []string{"drv"}},
		"old x86 with addresses": {given: `general protection fault: 0000 [#1] SMP
RIP: 0010:[<ffffffffc0a3f015>]  [<ffffffffc0a3f015>] drv_init+0x15/0x1000 [drv]
Call Trace:
 [<ffffffff811616e9>] ? __vunmap+0x99/0xf0`, then: []string{"drv"}},
		"build ID in the brackets": {given: `Oops: 0002 [#1] PREEMPT SMP
RIP: 0010:drv_init+0x15/0x1000 [drv 5f1d0a7bb1a9f0e2c8ad5a55a0ad67b2e2cbb4a5]`, then: []string{"drv"}},
		"the name as modprobe spells it": {given: `Oops: 0002 [#1] SMP
RIP: 0010:drv_init+0x15/0x1000 [my-drv]`, then: []string{"my_drv"}},
		"user space is no place": {given: `Oops: 0002 [#1] SMP
RIP: 0033:0x7fe6e0f30555
Modules linked in: a b`},
		"only the coming module": {given: `Oops: 0002 [#1] SMP
RIP: 0010:apply_relocations+0x15/0x1000
 <TASK>
 load_module+0x10/0x20
 ? guess+0x10/0x20 [guess]
 </TASK>
Modules linked in: one(OE) drv(+) going(OE-) [last unloaded: gone(+)]`, then: []string{"drv"}},
		"the list of modules goes on": {given: `Oops: 0002 [#1] SMP
Modules linked in: one two(E)
 842_compress drv(OE+) three
CPU: 0 PID: 1 Comm: insmod`, then: []string{"drv"}},
		"two coming modules: nobody": {given: `Oops: 0002 [#1] SMP
Modules linked in: one(+) drv(OE+)`},
		"an interrupt's module, not the interrupted one": {given: `Oops: 0002 [#1] SMP
RIP: 0010:list_del+0x15/0x1000
 <IRQ>
 bad_irq+0x10/0x20 [bad]
 </IRQ>
 <TASK>
RIP: 0010:drv_init+0x15/0x1000 [drv]
Modules linked in: bad drv(+)`, then: []string{"bad"}},
		"every crash counts once": {given: `Oops: 0002 [#1] SMP
RIP: 0010:a+0x15/0x1000 [first]
---[ end trace 0000000000000000 ]---
Oops: 0002 [#2] SMP
RIP: 0010:a+0x15/0x1000 [second]
---[ end trace 0000000000000000 ]---
RIP: 0010:a+0x15/0x1000 [first]
Kernel panic - not syncing: Fatal exception`, then: []string{"first", "second"}},
		"a warning before somebody else's crash": {given: `------------[ cut here ]------------
WARNING: CPU: 0 PID: 1 at drv.c:1 drv_init+0xa8/0xff0 [drv]
RIP: 0010:drv_init+0x15/0x1000 [drv]
---[ end trace 0000000000000000 ]---
Oops: 0002 [#1] SMP
RIP: 0010:a+0x15/0x1000 [bad]`, then: []string{"bad"}},
		"hardware":             {given: "Kernel panic - not syncing: Fatal machine check\nRIP: 0010:drv_init+0x15/0x1000 [drv]"},
		"out of memory":        {given: "Kernel panic - not syncing: Out of memory: compulsory panic_on_oom\n drv_init+0x15/0x1000 [drv]"},
		"another processor":    {given: "Oops: 0002 [#1] SMP\nNMI backtrace for cpu 1\nRIP: 0010:drv_poll+0x15/0x1000 [drv]"},
		"another CPU is stuck": {given: "Kernel panic - not syncing: Fatal exception in interrupt\n drv_init+0x10/0x20"},
		"stuck in a module": {given: "Kernel panic - not syncing: Hard LOCKUP\n <NMI>\n panic+0x1/0x2\n </NMI>\nRIP: " +
			"0010:drv_init+0x15/0x1000 [drv]", then: []string{"drv"}},
		"stuck on arm64": {given: "Kernel panic - not syncing: softlockup: hung tasks\n panic+0x1/0x2\n el1h_64_irq+0x1/0x2\n " +
			"drv_init+0x15/0x1000 [drv]", then: []string{"drv"}},
		"caller in the prefix": {given: "<4>[    2.426960][  T128] Oops: 0002 [#1] SMP\n<4>[    2.426960][  T128] RIP: 0010:a+0x15/0x1000 [drv]",
			then: []string{"drv"}},
		"carriage return": {given: "Oops: 0002 [#1] SMP\r\nRIP: 0010:a+0x15/0x1000 [drv]\r\n", then: []string{"drv"}},
		"pstore's own headline": {given: "Panic#2 Part1\n<4>[    2.4] Oops: 0002 [#1] SMP\n<4>[    2.4] RIP: 0010:a+0x15/0x1000 [drv]",
			then: []string{"drv"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.then, fuse.Culprits(test.given)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func FuzzCulprits(f *testing.F) {
	f.Add("Oops: 0002 [#1] SMP\nModules linked in: drv(OE+)\nRIP: 0010:a+0x15/0x1000 [drv]")
	f.Add("Kernel panic - not syncing: Fatal exception")
	f.Fuzz(func(t *testing.T, dump string) {
		for _, m := range fuse.Culprits(dump) {
			if m == "" || strings.ContainsAny(m, "- \n[") {
				t.Errorf("%q is no module", m)
			}
		}
	})
}
