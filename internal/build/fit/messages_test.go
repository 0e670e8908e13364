// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/check"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestMessages holds what is said of an image; internal/shared/kmod/check has the texts of what it
// refuses.
func TestMessages(t *testing.T) {
	const kernel, vermagic = "6.1.0-44-amd64", "6.1.0-44-amd64 SMP mod_unload modversions "
	nic := synth.Module{Name: "nic", Vermagic: vermagic, Imports: []string{"printk"}}
	with := func(change func(*synth.Module)) synth.Module {
		m := nic
		change(&m)
		return m
	}
	const (
		dependencies = "ok dependencies: all are available"
		flags        = `ok vermagic: "6.1.0-44-amd64 SMP mod_unload modversions": its flags were not compared (--kernel-tree)`
		symbols      = "unchecked symbols: give the kernel's Module.symvers or System.map as --symvers"
		unsigned     = "ok signature: none: only kernels that require no signature load it (no Secure Boot, no sig_enforce)"
	)
	for _, tc := range []struct {
		name  string
		given []synth.Module
		at    string
		wish  Wish
		then  []string
	}{
		{name: "no modules at all", then: []string{"failed modules: the image has no /opt/lib/modules/6.1.0-44-amd64; it has nothing below " +
			"/opt/lib/modules (--dir-name)"}},
		{
			name: "another kernel's modules", given: []synth.Module{nic}, at: "5.10.0",
			then: []string{"failed modules: the image has no /opt/lib/modules/6.1.0-44-amd64; it has modules for 5.10.0"},
		},
		{name: "facts of no kernel", given: []synth.Module{nic}, then: []string{dependencies, flags, symbols, unsigned}},
		{
			name: "the kernel's symbols", given: []synth.Module{nic}, wish: Wish{Symbols: map[string]kmod.Symbol{"printk": {Name: "printk"}}},
			then: []string{dependencies, flags, "ok symbols: the kernel exports all 1 that it uses", unsigned},
		},
		{
			name: "symbols with CRCs, of another release",
			given: []synth.Module{with(func(m *synth.Module) {
				m.Vermagic, m.ModVersions = "6.1.0-43-amd64 SMP mod_unload modversions ", true
			})},
			then: []string{
				dependencies, `unchecked vermagic: "6.1.0-43-amd64 SMP mod_unload modversions": its flags were not compared (--kernel-tree); ` +
					"it was built for 6.1.0-43-amd64, which the kernel allows only if all symbol CRCs are equal (--symvers)", symbols, unsigned,
			},
		},
		{
			name: "a dependency of the kernel's", given: []synth.Module{with(func(m *synth.Module) { m.Depends = []string{"ptp"} })},
			then: []string{"unchecked dependencies: not in the image: ptp; give the kernel's own tree as --kernel-tree", flags, symbols, unsigned},
		},
		{
			name: "firmware", given: []synth.Module{with(func(m *synth.Module) { m.Firmware = []string{"nic.bin"} })},
			then: []string{dependencies, flags, symbols, unsigned, "unchecked firmware: it may request nic.bin; give --firmware-path if the " +
				"image has it"},
		},
		{
			name: "firmware that the image lacks", given: []synth.Module{with(func(m *synth.Module) { m.Firmware = []string{"nic.bin"} })},
			wish: Wish{Firmware: "/fw"},
			then: []string{dependencies, flags, symbols, unsigned, "unchecked firmware: not in the image: nic.bin; the node must have it"},
		},
		{
			name: "no folder of firmware", given: []synth.Module{nic}, wish: Wish{Firmware: "/firmware"},
			then: []string{"failed firmware: the image has no directory /firmware (firmwarePath)"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := fstest.MapFS{"fw/other.bin": {}}
			for _, m := range tc.given {
				at := tc.at
				if at == "" {
					at = kernel
				}
				root["opt/lib/modules/"+at+"/extra/"+m.Name+".ko"] = &fstest.MapFile{Data: m.Bytes()}
			}
			tc.wish.Kernel, tc.wish.Dir = kernel, "/opt"
			findings, err := Examine(root, tc.wish)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				got = append(got, fmt.Sprintf("%s %s: %s", f.State, f.Check, f.Text))
			}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMessagesOfSignatures names who signed a module.
func TestMessagesOfSignatures(t *testing.T) {
	vendor := signature.Signature{Signers: []signature.Signer{{KeyID: "ab12", Hash: "sha512"}}}
	distribution := signature.Signature{Signers: []signature.Signer{{Serial: "07", Issuer: "Distribution", Hash: "sha256"}}}
	for _, tc := range []struct {
		name    string
		last    *signature.Signature
		earlier []signature.Signature
		then    string
	}{
		{"none", nil, nil, "none: only kernels that require no signature load it (no Secure Boot, no sig_enforce)"},
		{"one", &vendor, nil, "by the key with identifier ab12 (sha512): only the node knows whether it trusts the signature"},
		{
			"two", &vendor, []signature.Signature{distribution}, "by the key with identifier ab12 (sha512): only the node knows whether it trusts " +
				"the signature; " +
				`kernels do not look at the one before, by the key with serial number 07 issued by "Distribution" (sha256)`,
		},
		{"damaged", &signature.Signature{Problem: "truncated"}, nil, "one that cannot be read (truncated): only the node knows whether it " +
			"trusts the signature"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := signed(check.Module{Name: "nic", Details: &kmod.Details{Signature: tc.last, Earlier: tc.earlier}})
			if got.Text != tc.then {
				t.Errorf("got  %s\nwant %s", got.Text, tc.then)
			}
		})
	}
}
