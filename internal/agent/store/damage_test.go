// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/store"
)

func TestOpenFindsDamage(t *testing.T) {
	const ko = "lib/modules/6.1.0-t/extra/a.ko"
	for name, damage := range map[string]func(dir string) error{
		"changed":   func(dir string) error { return os.WriteFile(filepath.Join(dir, ko), []byte("bbb"), 0o600) },
		"truncated": func(dir string) error { return os.Truncate(filepath.Join(dir, ko), 0) },
		"removed":   func(dir string) error { return os.Remove(filepath.Join(dir, ko)) },
		"added":     func(dir string) error { return os.WriteFile(filepath.Join(dir, "evil.ko"), nil, 0o600) },
		"link":      func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "evil.ko")) },
		"all gone":  os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, store.Options{})
			n.deliver(good)
			digest := n.imported("id1")
			n.imported("id2")
			if err := damage(filepath.Join(n.state, "sha256", digest)); err != nil {
				t.Fatal(err)
			}
			if _, err := n.store.Open("id1"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("open: %v, want fs.ErrNotExist", err)
			}
			if held, err := n.store.Held(); err != nil || len(held) != 0 {
				t.Errorf("still held: %v %v", held, err)
			}
			// A new delivery mends it.
			if again := n.imported("id1"); again != digest {
				t.Errorf("digest %s, want %s", again, digest)
			}
			if diff := cmp.Diff(good, n.read("id1")); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettleReplacesDamagedTwin(t *testing.T) {
	n := newNode(t, store.Options{})
	n.deliver(good)
	digest := n.imported("id1")
	if err := os.WriteFile(filepath.Join(n.state, "sha256", digest, "firmware/a.bin"), []byte("??"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.imported("id2")
	if diff := cmp.Diff(good, n.read("id2")); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

// TestDamagedTwinThatStays: what cannot be moved aside is not recorded as the new delivery.
func TestDamagedTwinThatStays(t *testing.T) {
	n := newNode(t, store.Options{})
	n.deliver(good)
	digest := n.imported("id1")
	if err := os.WriteFile(filepath.Join(n.state, "sha256", digest, "firmware/a.bin"), []byte("??"), 0o600); err != nil {
		t.Fatal(err)
	}
	aside := filepath.Join(n.state, "damaged")
	if err := errors.Join(os.RemoveAll(aside), os.WriteFile(aside, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := n.store.Import(t.Context(), "id2", carrier)
	if err == nil || !strings.Contains(err.Error(), syscall.ENOTDIR.Error()) {
		t.Errorf("got %v, want why the damaged tree is still there", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: reads as a carrier that is not done, which is asked again for ever", err)
	}
	if held, err := n.store.Held(); err != nil || len(held) != 0 {
		t.Errorf("held %v %v, want nothing", held, err)
	}
	if err := errors.Join(os.Remove(aside), os.Mkdir(aside, 0o700)); err != nil {
		t.Fatal(err)
	}
	n.imported("id2")
	if diff := cmp.Diff(good, n.read("id2")); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

func TestDamagedRecordIsMovedAside(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "foreign id": `{"id":"other","digest":"00"}`,
		"climbing digest": `{"id":"id1","digest":"../../etc"}`} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, store.Options{})
			n.deliver(good)
			n.imported("id1")
			if err := os.WriteFile(filepath.Join(n.state, "deliveries", "id1.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if held, err := n.store.Held(); err != nil || len(held) != 0 {
				t.Errorf("held %v %v, want nothing", held, err)
			}
			if aside, err := os.ReadDir(filepath.Join(n.state, "damaged")); err != nil || len(aside) != 1 {
				t.Errorf("moved aside: %v %v, want one file", aside, err)
			}
			n.imported("id1")
		})
	}
}

// TestRecordThatIsNoFileIsMovedAside: what it leads to is not read, and not touched.
func TestRecordThatIsNoFileIsMovedAside(t *testing.T) {
	for name, put := range map[string]func(record, kept string) error{
		"a link": func(record, kept string) error { return errors.Join(os.Rename(record, kept), os.Symlink(kept, record)) },
		"a directory": func(record, kept string) error {
			return errors.Join(os.Rename(record, kept), os.MkdirAll(filepath.Join(record, "x"), 0o700))
		},
		"a pipe": func(record, kept string) error {
			return errors.Join(os.Rename(record, kept), syscall.Mkfifo(record, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, store.Options{})
			n.deliver(good)
			n.imported("id1")
			kept := filepath.Join(t.TempDir(), "kept")
			if err := put(filepath.Join(n.state, "deliveries", "id1.json"), kept); err != nil {
				t.Fatal(err)
			}
			if held, err := n.store.Held(); err != nil || len(held) != 0 {
				t.Errorf("held %v %v, want nothing", held, err)
			}
			if aside, err := os.ReadDir(filepath.Join(n.state, "damaged")); err != nil || len(aside) != 1 {
				t.Errorf("moved aside: %v %v, want one", aside, err)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Error(err)
			}
			n.imported("id1")
		})
	}
}

func TestRetain(t *testing.T) {
	n := newNode(t, store.Options{})
	n.deliver(good)
	digest := n.imported("a1")
	n.imported("a2")
	n.file("tree/firmware/a.bin", "other")
	more := maps.Clone(good)
	more["firmware/a.bin"] = "other"
	n.manifest(more)
	n.imported("b1")
	if err := n.store.Retain([]string{"a2", "unknown"}); err != nil {
		t.Fatal(err)
	}
	held, err := n.store.Held()
	if diff := cmp.Diff(map[string]string{"a2": digest}, held); diff != "" || err != nil {
		t.Errorf("held: %v\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"sha256/" + digest, "deliveries/a2.json"}, n.stray()); diff != "" {
		t.Errorf("on disk (-want +got):\n%s", diff)
	}
	if err := n.store.Retain(nil); err != nil {
		t.Fatal(err)
	}
	if left := n.stray(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestImportEndsWithItsContext(t *testing.T) {
	n := newNode(t, store.Options{})
	n.deliver(good)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.store.Import(ctx, "id1", carrier); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
	if left := n.stray(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestNoDescriptorsIsNoDamage: what cannot be looked at for a moment is still held afterwards.
func TestNoDescriptorsIsNoDamage(t *testing.T) {
	n := newNode(t, store.Options{})
	n.deliver(good)
	digest := n.imported("id1")
	exhausted := func(do func()) {
		t.Helper()
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		few := before
		few.Cur = 64
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		var open []*os.File
		defer func() {
			for _, f := range open {
				_ = f.Close() // only read from
			}
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
				t.Fatal(err)
			}
		}()
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			open = append(open, f)
		}
		for range 9 { // with every number of descriptors left, something else fails first
			do()
			last := len(open) - 1
			_ = open[last].Close() // only read from
			open = open[:last]
		}
	}
	exhausted(func() {
		if _, err := n.store.Open("id1"); errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open: %v", err)
		}
		if held, err := n.store.Held(); err == nil && held["id1"] != digest {
			t.Errorf("held: %v", held)
		}
		if _, err := n.store.Import(t.Context(), "id2", carrier); errors.Is(err, fs.ErrNotExist) {
			t.Errorf("import: %v", err)
		}
		_ = n.store.Retain([]string{"id1", "id2"}) // an error is fine
	})
	if held, err := n.store.Held(); err != nil || held["id1"] != digest {
		t.Errorf("afterwards: %v, %v", held, err)
	}
	if diff := cmp.Diff(good, n.read("id1")); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	if aside, err := os.ReadDir(filepath.Join(n.state, "damaged")); err != nil || len(aside) > 0 {
		t.Errorf("moved aside: %v, %v", aside, err)
	}
}
