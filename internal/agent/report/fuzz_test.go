// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// FuzzLoadFailed: whatever the kernel printed, a failure has a known reason and names what it says.
func FuzzLoadFailed(f *testing.F) {
	f.Add("ENOENT", "m: Unknown symbol f (err -2)\nx: request_module('hmac(sha256)') error.")
	f.Add("EINVAL", "m: `x' invalid for parameter `n'")
	f.Add("EPERM", "Lockdown: x: unsigned module loading is restricted; see man kernel_lockdown.7")
	f.Add("", "\xff\n\n could not load module ''")
	f.Fuzz(func(t *testing.T, errno, log string) {
		lines := strings.Split(log, "\n")
		a := LoadFailed(&host.CallError{Errno: errno, Log: lines}, []string{"n"})
		if !reasons.Known(a.Reason) || a.Message == "" {
			t.Errorf("attempt %+v", a)
		}
		if name := requested(lines); !strings.Contains(log, name) {
			t.Errorf("module %q was not asked for", name)
		}
	})
}
