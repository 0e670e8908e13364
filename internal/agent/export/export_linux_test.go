// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/manifest"
)

// Files of mode 0600 are root's alone; a carrier is not root.
func TestUnreadableFilesAreNamed(t *testing.T) {
	for name, what := range map[string]string{
		"module":           "opt/lib/modules/" + kernel + "/extra/below.ko",
		"index":            "opt/lib/modules/" + kernel + "/modules.dep",
		"module directory": "opt/lib/modules/" + kernel + "/extra",
		"kernel directory": "opt/lib/modules/" + kernel,
		"firmware":         "firmware/top/a.bin",
		"firmware folder":  "firmware/top",
	} {
		t.Run(name, func(t *testing.T) {
			i, out := usual(t), t.TempDir()
			for _, dir := range []string{filepath.Dir(i.dir), filepath.Dir(out)} {
				chmod(t, dir, 0o755)
			}
			chmod(t, out, 0o777)
			chmod(t, filepath.Join(i.dir, what), 0)
			asNobody(t, func() {
				o := export.Options{From: i.dir, To: out, Kernel: kernel, DirName: "/opt", Module: "top", FirmwarePath: "/firmware"}
				if err := export.Run(t.Context(), o); err != nil {
					t.Error(err)
				}
			})
			chmod(t, filepath.Join(i.dir, what), 0o755)
			_, failure := result(t, out)
			if failure == nil || failure.Reason != manifest.ReasonImageUnreadable ||
				!strings.Contains(failure.Message, "/"+what+" may not be read") {
				t.Errorf("got %v, want /%s named", failure, what)
			}
		})
	}
}

func chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

// asNobody runs f with an unprivileged user's rights to files, if the test runs as root.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	const nobody = 65534
	if os.Getuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Setfsuid(0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	f()
}
