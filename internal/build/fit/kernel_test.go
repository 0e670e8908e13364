// SPDX-License-Identifier: Apache-2.0

package fit_test

import (
	"testing"
	"testing/fstest"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/fit"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestKernelsThatEndInPlus: their modules lie below the whole version or, as upstream builds them,
// below the one without it. What the kernel compares is the whole version.
func TestKernelsThatEndInPlus(t *testing.T) {
	const cos = "6.1.123+"
	for name, tc := range map[string]struct {
		kernel, dir, vermagic string
		reason                string
	}{
		"all alike":              {kernel: cos, dir: cos, vermagic: cos},
		"upstream's directory":   {kernel: cos, dir: "6.1.123", vermagic: cos},
		"built without it":       {kernel: cos, dir: "6.1.123", vermagic: "6.1.123", reason: v1beta1.ReasonVermagicMismatch},
		"another's directory":    {kernel: "6.1.123", dir: cos, vermagic: "6.1.123"},
		"another kernel's image": {kernel: cos, dir: "6.1.124+", vermagic: "6.1.124+", reason: v1beta1.ReasonImageUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{"opt/lib/modules/" + tc.dir + "/extra/nic.ko": {
				Data: synth.Module{Name: "nic", Vermagic: tc.vermagic + " SMP mod_unload "}.Bytes(),
			}}
			findings, err := fit.Examine(root, fit.Wish{Kernel: tc.kernel, Dir: "/opt"})
			if err != nil {
				t.Fatal(err)
			}
			reason := ""
			for _, f := range findings {
				if f.State == fit.Failed {
					reason = f.Reason
				}
			}
			if reason != tc.reason {
				t.Errorf("the reason is %q, want %q: %+v", reason, tc.reason, findings)
			}
		})
	}
}
