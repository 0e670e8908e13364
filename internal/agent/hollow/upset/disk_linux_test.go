// SPDX-License-Identifier: Apache-2.0

package upset_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-project/drover/internal/agent/hollow/upset"
)

// TestDisk: a full disk takes no content and keeps what it has, and takes it again when there is
// room.
func TestDisk(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test, and its mounts with it
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mount namespace of its own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"a size": 1 << 20, "half of the memory": upset.HalfOfMemory} {
		t.Log(name)
		dir := filepath.Join(t.TempDir(), "disk")
		d, err := upset.Mount(dir, size)
		if err != nil {
			t.Fatal(err)
		}
		fills(t, d, dir)
	}
}

func fills(t *testing.T, d *upset.Disk, dir string) {
	t.Helper()
	defer func() {
		if err := d.Unmount(); err != nil {
			t.Error(err)
		}
	}()
	kept, more := filepath.Join(dir, "kept"), filepath.Join(dir, "more")
	if err := errors.Join(os.WriteFile(kept, make([]byte, 9000), 0o600), d.Fill()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(more, make([]byte, 9000), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk answers %v", err)
	}
	if content, err := os.ReadFile(kept); err != nil || len(content) != 9000 {
		t.Errorf("it has %d bytes, %v", len(content), err)
	}
	if err := errors.Join(d.Empty(), os.WriteFile(more, make([]byte, 9000), 0o600)); err != nil {
		t.Errorf("with room, it answers %v", err)
	}
}
