// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/statefile"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// opened opens the fuse and tells it the boot; the test ends if that fails.
func opened(t *testing.T, dir, boot string) *Fuse {
	t.Helper()
	f, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Boot(boot, nil, t0); err != nil {
		t.Fatal(err)
	}
	return f
}

// A file that cannot be trusted is out of the way after one look, and the fuse works.
func TestUntrustedFilesAreMovedAside(t *testing.T) {
	dir := t.TempDir()
	f := opened(t, dir, "1")
	if err := f.Intent(Build{Module: "drv<&>"}, t0); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) []byte { return []byte(strings.Replace(string(good), old, new, 1)) }
	content := func(data []byte) func(string) error {
		return func(name string) error { return os.WriteFile(name, data, 0o600) }
	}
	tests := map[string]func(name string) error{
		"empty":          content(nil),
		"half":           content(good[:len(good)/2]),
		"no JSON":        content([]byte("hello")),
		"null":           content([]byte("null")),
		"another schema": content(swap(`"schema":1`, `"schema":2`)),
		"one bit":        content(swap(`"drv`, `"dsv`)),
		"other digest":   content(swap(`"sha256":"`, `"sha256":"00`)),
		"too large":      content(make([]byte, maxSize+1)),
		"for all to write": func(name string) error {
			return errors.Join(os.WriteFile(name, good, 0o600), os.Chmod(name, 0o666))
		},
		"link":            func(name string) error { return os.Symlink("/etc/hostname", name) },
		"link to nowhere": func(name string) error { return os.Symlink("nowhere", name) },
		"link to a fuse": func(name string) error {
			return errors.Join(os.WriteFile(name+".other", good, 0o600), os.Symlink(fileName+".other", name))
		},
		"directory": func(name string) error { return os.MkdirAll(filepath.Join(name, "sub"), 0o700) },
		"pipe":      func(name string) error { return syscall.Mkfifo(name, 0o600) },
	}
	if os.Geteuid() == 0 {
		tests["another user's"] = func(name string) error {
			return errors.Join(os.WriteFile(name, good, 0o600), os.Chown(name, 12345, 0))
		}
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) { movedAside(t, make) })
	}
}

func movedAside(t *testing.T, make func(name string) error) {
	dir := t.TempDir()
	for round := range 2 { // the second has to replace what the first has put aside
		if err := os.RemoveAll(filepath.Join(dir, fileName)); err != nil {
			t.Fatal(err)
		}
		if err := make(filepath.Join(dir, fileName)); err != nil && round == 0 {
			t.Fatal(err)
		}
		f, err := Open(dir, nil)
		var aside *AsideError
		if !errors.As(err, &aside) || f == nil {
			t.Fatalf("open: %v %v", f, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, AsideName)); err != nil {
			t.Error(err)
		}
		if verdicts, err := f.Boot("2", nil, t0); err != nil || len(verdicts) != 0 {
			t.Fatalf("boot: %v %v", verdicts, err)
		}
		if err := f.Intent(Build{Module: "drv"}, t0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		again := opened(t, dir, "2")
		if got := again.List(t0); len(got) != 1 || !got[0].Loading {
			t.Errorf("after it: %+v", got)
		}
	}
}

// What lies at the temporary name is replaced, never written through.
func TestLeftoversAreNotFollowed(t *testing.T) {
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, leave := range []func(name string) error{
		func(name string) error { return os.WriteFile(name, []byte("half"), 0o600) },
		func(name string) error { return os.Symlink(victim, name) },
		func(name string) error { return os.MkdirAll(filepath.Join(name, "sub"), 0o700) },
	} {
		if err := leave(filepath.Join(dir, newName)); err != nil {
			t.Fatal(err)
		}
		f := opened(t, dir, "1")
		if err := f.Blame(Build{Module: "drv"}, t0); err != nil {
			t.Fatal(err)
		}
		if _, ok := opened(t, dir, "1").Allowed(Build{Module: "drv"}, t0); ok {
			t.Error("the quarantine is lost")
		}
	}
	if data, err := os.ReadFile(victim); err != nil || string(data) != "precious" {
		t.Errorf("the link's target holds %q, %v", data, err)
	}
}

// A disk that refuses keeps loads from beginning, and nothing of what was learned meanwhile is
// lost.
func TestFullDisk(t *testing.T) {
	for op := range opsPerWrite {
		dir := t.TempDir()
		f := opened(t, dir, "1")
		a, b := Build{Module: "a"}, Build{Module: "b"}
		if err := f.Intent(a, t0); err != nil {
			t.Fatal(err)
		}
		full := &faulty{Dir: f.disk, left: op, err: syscall.ENOSPC}
		f.disk = full
		if err := f.Done(a, false, t0); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("operation %d: done: %v", op, err)
		}
		if err := f.Blame(a, t0); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("operation %d: blame: %v", op, err)
		}
		if err := f.Intent(b, t0); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("operation %d: intent: %v", op, err)
		}
		if _, ok := f.Allowed(b, t0); !ok {
			t.Errorf("operation %d: an intent that failed is open", op)
		}
		full.left = 1000
		if _, err := f.Settle(t0); err != nil { // anything that may write catches up
			t.Fatal(err)
		}
		again := opened(t, dir, "2")
		if got := again.List(t0); len(got) != 1 || got[0].Build != a || !got[0].Evidence {
			t.Errorf("operation %d: on disk: %+v", op, got)
		}
	}
}

// Without a sync the file is still replaced whole.
func TestNoSync(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, statefile.NoSync)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Blame(Build{Module: "drv"}, t0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := opened(t, dir, "1").Allowed(Build{Module: "drv"}, t0); ok {
		t.Error("the quarantine is lost")
	}
	if _, err := Open(filepath.Join(dir, "missing"), nil); err == nil {
		t.Error("a directory that is not there")
	}
}

// Loads of several modules, a status report and a timer at the same time: for the race detector.
func TestConcurrent(t *testing.T) {
	f := opened(t, t.TempDir(), "1")
	var all sync.WaitGroup
	for _, module := range []string{"a", "b", "c"} {
		all.Go(func() {
			b := Build{Module: module}
			for range 10 {
				if err := errors.Join(f.Intent(b, t0), f.Done(b, true, t0)); err != nil {
					t.Error(err)
				}
				f.List(t0)
				if _, err := f.Settle(t0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// What a load pays for: an intent and its end, both synced.
func BenchmarkIntentAndDone(b *testing.B) {
	f, err := Open(b.TempDir(), nil)
	if err == nil {
		_, err = f.Boot("1", nil, t0)
	}
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := errors.Join(f.Intent(good, t0), f.Done(good, true, t0)); err != nil {
			b.Fatal(err)
		}
	}
}
