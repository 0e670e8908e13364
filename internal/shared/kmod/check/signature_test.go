// SPDX-License-Identifier: Apache-2.0

package check_test

import (
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod/check"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

func TestCheckSignature(t *testing.T) {
	cases := map[string]struct {
		signed bool // the test's signatures cannot be read
		want   []finding
		says   []string
	}{
		"unsigned": {},
		"damaged": {signed: true, want: []finding{{"a", v1beta1.ReasonSignatureRejected, false}},
			says: []string{"cannot be read", "sign the file again"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given := modules(t, synth.Module{Name: "a", Vermagic: vermagic, ModVersions: true, Signed: tc.signed})
			expect(t, tc.want, tc.says, check.Check(kernel(), given))
		})
	}
}
