// SPDX-License-Identifier: Apache-2.0

package check_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/check"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

const (
	release  = "6.1.0-18-amd64"
	flags    = " SMP preempt mod_unload modversions "
	vermagic = release + flags
)

func kernel() check.Kernel {
	return check.Kernel{Release: release, Machine: synth.MachineX86_64, Vermagic: vermagic}
}

// with changes a kernel that otherwise fits.
func with(change func(*check.Kernel)) check.Kernel {
	k := kernel()
	change(&k)
	return k
}

func details(t *testing.T, m synth.Module) *kmod.Details {
	t.Helper()
	d, err := kmod.ReadDetails(m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func modules(t *testing.T, given ...synth.Module) []check.Module {
	t.Helper()
	var all []check.Module
	for _, m := range given {
		all = append(all, check.Module{Name: m.Name, Details: details(t, m)})
	}
	return all
}

// exports is a kernel's symbol table; a zero CRC is an unknown one.
func exports(table map[string]uint32) func(string) (kmod.Symbol, bool) {
	return func(name string) (kmod.Symbol, bool) {
		crc, ok := table[name]
		return kmod.Symbol{Name: name, CRC: crc, HasCRC: crc != 0}, ok
	}
}

// finding is what tests look at: of the message only parts.
type finding struct {
	Module, Reason string
	Certain        bool
}

// expect compares findings; says has the words that all messages together must have.
func expect(t *testing.T, want []finding, says []string, got []check.Finding) {
	t.Helper()
	var short []finding
	var messages []string
	for _, f := range got {
		short = append(short, finding{f.Module, f.Reason, f.Certain})
		messages = append(messages, f.Message)
		if !strings.HasPrefix(f.Message, "Module "+f.Module+" ") || !strings.HasSuffix(f.Message, ".") || !strings.Contains(f.Message, "; ") {
			t.Errorf("the message does not name the module and a next step: %s", f.Message)
		}
	}
	if diff := cmp.Diff(want, short); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, strings.Join(messages, "\n"))
	}
	for _, words := range says {
		if all := strings.Join(messages, "\n"); !strings.Contains(all, words) {
			t.Errorf("%q is not said:\n%s", words, all)
		}
	}
}

func TestCheckHost(t *testing.T) {
	fits := synth.Module{Name: "a", Vermagic: vermagic, ModVersions: true}
	arm := fits
	arm.Machine, arm.Vermagic = synth.MachineAArch64, "6.1.0-18-arm64 SMP preempt mod_unload modversions aarch64"
	odd := fits
	odd.Machine = 9999
	cases := map[string]struct {
		kernel check.Kernel
		given  []synth.Module
		want   []finding
		says   []string
	}{
		"nothing to load":  {kernel: with(func(k *check.Kernel) { k.ModulesDisabled = true })},
		"fits":             {kernel: kernel(), given: []synth.Module{fits}},
		"nothing is known": {given: []synth.Module{fits, arm}},
		"modules disabled": {kernel: with(func(k *check.Kernel) { k.ModulesDisabled = true }), given: []synth.Module{arm, fits},
			want: []finding{{"a", v1beta1.ReasonModulesDisabled, true}}, says: []string{"is 1", "would have to be 0", "reboot"}},
		"wrong machine": {kernel: kernel(), given: []synth.Module{arm}, want: []finding{{"a", v1beta1.ReasonVermagicMismatch, true}},
			says: []string{"aarch64 (ELF machine 183)", "x86_64 (62)"}},
		"unknown machine": {kernel: kernel(), given: []synth.Module{odd}, want: []finding{{"a", v1beta1.ReasonVermagicMismatch, true}},
			says: []string{"unknown (ELF machine 9999)"}},
		"one of two is bad": {kernel: kernel(), given: []synth.Module{{Name: "b", Vermagic: vermagic, ModVersions: true}, arm},
			want: []finding{{"a", v1beta1.ReasonVermagicMismatch, true}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect(t, tc.want, tc.says, check.Check(tc.kernel, modules(t, tc.given...)))
		})
	}
}

func TestCheckVermagic(t *testing.T) {
	const plain = release + " SMP mod_unload " // of a kernel without CONFIG_MODVERSIONS
	kernelOf := func(vermagic string) check.Kernel {
		return with(func(k *check.Kernel) { k.Vermagic = vermagic })
	}
	certain := []finding{{"a", v1beta1.ReasonVermagicMismatch, true}}
	suspected := []finding{{"a", v1beta1.ReasonVermagicMismatch, false}}
	cases := map[string]struct {
		kernel check.Kernel
		module string
		crcs   bool
		want   []finding
		says   []string
	}{
		"equal":             {kernel: kernel(), module: vermagic, crcs: true},
		"blanks at the end": {kernel: kernelOf(strings.TrimSpace(vermagic)), module: vermagic, crcs: true},
		"release with CRCs": {kernel: kernel(), module: "6.1.0-17-amd64" + flags, crcs: true},
		"release without CRCs": {kernel: kernelOf(plain), module: "6.1.0-17-amd64 SMP mod_unload ", want: certain,
			says: []string{`"6.1.0-17-amd64 SMP mod_unload"`, `"6.1.0-18-amd64 SMP mod_unload"`, "the releases differ"}},
		"CRCs on a kernel without":          {kernel: kernelOf(plain), module: "6.1.0-17-amd64 SMP mod_unload ", crcs: true, want: certain},
		"no CRCs on a kernel with, release": {kernel: kernel(), module: "6.1.0-17-amd64" + flags, want: certain},
		"a flag in its place": {kernel: kernel(), module: "6.1.0-17-amd64 SMP preempt_rt mod_unload modversions ", crcs: true,
			want: certain, says: []string{"only the module has preempt_rt", "only the kernel has preempt)", "headers of kernel " + release}},
		"a flag more": {kernel: kernel(), module: release + " SMP preempt mod_unload modversions RANDSTRUCT_1 ",
			crcs: true, want: certain},
		"a flag less": {kernel: kernel(), module: release + " SMP mod_unload modversions ", crcs: true, want: certain,
			says: []string{"only the kernel has preempt)"}},
		"other order": {kernel: kernel(), module: release + " preempt SMP mod_unload modversions ", crcs: true,
			want: certain, says: []string{"order"}},
		"sample of another kernel": {kernel: kernelOf("6.1.0-20-amd64 SMP preempt_rt mod_unload modversions "), module: vermagic,
			crcs: true, want: suspected},
		"no vermagic":                        {kernel: kernel(), module: "", crcs: true, want: suspected, says: []string{"no vermagic"}},
		"no sample, other release with CRCs": {kernel: kernelOf(""), module: "6.1.0-17-amd64" + flags, crcs: true},
		"no sample, same release":            {kernel: kernelOf(""), module: plain},
		"no sample, other release without CRCs": {kernel: kernelOf(""), module: "6.1.0-17-amd64 SMP mod_unload ", want: suspected,
			says: []string{"6.1.0-17-amd64", release}},
		"no CRCs on a kernel with, equal strings": {kernel: kernel(), module: vermagic, want: suspected,
			says: []string{"no symbol CRCs", "Module.symvers"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given := modules(t, synth.Module{Name: "a", Vermagic: tc.module, ModVersions: tc.crcs})
			expect(t, tc.want, tc.says, check.Check(tc.kernel, given))
		})
	}
}

func TestCheckSymbols(t *testing.T) {
	module := func(name string, exported, imported []string, crcs map[string]uint32) synth.Module {
		return synth.Module{Name: name, Vermagic: vermagic, ModVersions: true, Exports: exported, Imports: imported, CRCs: crcs}
	}
	ours := map[string]uint32{"module_layout": 0x10, "printk": 0x20}
	a := module("a", nil, []string{"printk"}, ours)
	lib := module("lib", []string{"lib_open"}, nil, ours)
	user := module("user", nil, []string{"lib_open"}, ours)
	weak := module("a", nil, nil, ours)
	weak.WeakImports = []string{"maybe"}
	unknown := func(module string) []finding { return []finding{{module, v1beta1.ReasonUnknownSymbol, false}} }
	cases := map[string]struct {
		kernel  map[string]uint32 // nil: unknown
		plainly bool              // the kernel has no CONFIG_MODVERSIONS
		given   []synth.Module
		want    []finding
		says    []string
	}{
		"all there":       {kernel: ours, given: []synth.Module{a}},
		"symbols unknown": {given: []synth.Module{a, user}},
		"CRCs unknown":    {kernel: map[string]uint32{"printk": 0}, given: []synth.Module{a}},
		"missing": {kernel: map[string]uint32{}, given: []synth.Module{a}, want: unknown("a"),
			says: []string{"1 symbol: printk,", "kernel " + release}},
		"many missing": {kernel: map[string]uint32{},
			given: []synth.Module{module("a", nil, []string{"p", "q", "r", "s", "t", "p"}, nil)}, want: unknown("a"),
			says: []string{"5 symbols: p, q, r and 2 more"}},
		"weak and missing": {kernel: ours, given: []synth.Module{weak}},
		"other CRC": {kernel: map[string]uint32{"printk": 0xabc, "module_layout": 0x10}, given: []synth.Module{a},
			want: unknown("a"), says: []string{"1 symbol ", "printk (module 0x00000020, kernel 0x00000abc)"}},
		"other module_layout": {kernel: map[string]uint32{"printk": 0x20, "module_layout": 0x11}, given: []synth.Module{a}, want: unknown("a"),
			says: []string{"module_layout (module 0x00000010, kernel 0x00000011)"}},
		"CRCs do not count": {kernel: map[string]uint32{"printk": 0xabc}, plainly: true, given: []synth.Module{a}},
		"missing and other CRC": {kernel: map[string]uint32{"module_layout": 0x11}, given: []synth.Module{a},
			want: append(unknown("a"), unknown("a")...)},
		"from a module before": {kernel: ours, given: []synth.Module{lib, user}},
		"from a module after": {kernel: ours, given: []synth.Module{user, lib}, want: unknown("user"),
			says: []string{"module lib exports", "after user in modulesLoadingOrder"}},
		"module with other CRC": {kernel: ours,
			given: []synth.Module{module("lib", []string{"lib_open"}, nil, map[string]uint32{"module_layout": 0x10, "lib_open": 0x99}), user},
			want:  unknown("user"), says: []string{"lib 0x00000099"}},
		"the module's own first": {kernel: map[string]uint32{"lib_open": 0x98}, given: []synth.Module{lib, user}},
		"in a live module":       {kernel: map[string]uint32{"lib_open": 0}, given: []synth.Module{user}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := kernel()
			if tc.kernel != nil {
				k.Symbols = exports(tc.kernel)
			}
			if tc.plainly {
				k.Vermagic = release + " SMP mod_unload "
				for i := range tc.given {
					tc.given[i].Vermagic = k.Vermagic
				}
			}
			expect(t, tc.want, tc.says, check.Check(k, modules(t, tc.given...)))
		})
	}
}
