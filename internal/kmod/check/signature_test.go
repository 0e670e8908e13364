// SPDX-License-Identifier: Apache-2.0

package check_test

import (
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/kmod"
	"github.com/drover-project/drover/internal/kmod/check"
	"github.com/drover-project/drover/internal/kmod/synth"
)

func TestCheckSignature(t *testing.T) {
	signer, err := synth.NewOwner("Our key")
	if err != nil {
		t.Fatal(err)
	}
	file := synth.Module{Name: "a", Vermagic: vermagic, ModVersions: true}
	signed, err := signer.Sign(file.Bytes(), synth.SignOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := kmod.ReadDetails(signed)
	if err != nil {
		t.Fatal(err)
	}
	damaged := file
	damaged.Signed = true
	cases := map[string]struct {
		given check.Module
		want  []finding
		says  []string
	}{
		"unsigned": {given: modules(t, file)[0]},
		"signed":   {given: check.Module{Name: "a", Details: whole}},
		"damaged":  {given: modules(t, damaged)[0], want: []finding{{"a", v1beta1.ReasonSignatureRejected, false}}, says: []string{"cannot be read"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect(t, tc.want, tc.says, check.Check(kernel(), []check.Module{tc.given})) })
	}
}
