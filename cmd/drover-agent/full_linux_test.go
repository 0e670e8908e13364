// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/boot"
	"github.com/drover-project/drover/internal/agent/hollow/upset"
	"github.com/drover-project/drover/internal/agent/place"
)

// TestStartOnAFullDisk: an agent that starts while its disk is full has what the last one knew. One
// that began with nothing would say that it holds no delivery, and that nothing is loaded.
func TestStartOnAFullDisk(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test, and its mounts with it
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mount namespace of its own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	o := runOptions{nodeOptions: nodeOptions{nodeName: "n", hostRoot: "/", stateDir: filepath.Join(base, "state"),
		kubeletPods: filepath.Join(base, "pods"), firmwareDir: filepath.Join(base, "firmware")}}
	disk, err := upset.Mount(o.stateDir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := disk.Unmount(); err != nil {
			t.Error(err)
		}
	}()
	look := func() string {
		return place.Look(place.Options{StateDir: o.stateDir, PodsDir: base, MountInfo: "/proc/self/mountinfo"}).Idle
	}
	if err := errors.Join(os.WriteFile(filepath.Join(o.stateDir, "of-others"), make([]byte, 9000), 0o600), disk.Fill()); err != nil {
		t.Fatal(err)
	}
	if look() == "" {
		t.Error("a first agent would have no place for what it must remember")
	}
	if err := disk.Empty(); err != nil {
		t.Fatal(err)
	}
	for _, full := range []bool{false, true} {
		if full {
			if err := disk.Fill(); err != nil {
				t.Fatal(err)
			}
		}
		if idle := look(); idle != "" {
			t.Errorf("full %v: the agent is idle: %s", full, idle)
		}
		starts(t, o)
	}
}

// TestIdleOnAFullDisk: an agent without a place for its state says so. What it needs for that is in
// memory.
func TestIdleOnAFullDisk(t *testing.T) {
	full := filepath.Join(t.TempDir(), "not", "there")
	t.Setenv("TMPDIR", full)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	o := runOptions{nodeOptions: nodeOptions{nodeName: "n", hostRoot: "/", stateDir: full, kubeletPods: full}}
	if err := o.idle(ctx, &rest.Config{Host: "127.0.0.1:1"}, place.Findings{Idle: "there is no room"}); err != nil {
		t.Error(err)
	}
}

// starts makes all that an agent needs but the API server.
func starts(t *testing.T, o runOptions) {
	t.Helper()
	lock, err := boot.Take(t.Context(), o.stateDir, "a test", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := o.parts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.New(parts); err != nil {
		t.Error(err)
	}
	if err := errors.Join(parts.Fuse.Close(), lock.Release()); err != nil {
		t.Error(err)
	}
}
