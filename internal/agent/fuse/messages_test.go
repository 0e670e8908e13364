// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMessages: why the fuse lets a build not be loaded.
func TestMessages(t *testing.T) {
	nic := Build{Module: "nic", BuildID: "a1"}
	// down is a load during which the node goes down, and the next boot.
	down := func(t *testing.T, f *Fuse, boot string, now time.Time, dumps ...Evidence) {
		t.Helper()
		if err := f.Intent(nic, now); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Boot(boot, dumps, now); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		given func(t *testing.T, f *Fuse)
		after time.Duration
		build Build
		then  string
	}{
		"a strike": {
			func(t *testing.T, f *Fuse) { down(t, f, "2", t0) }, time.Minute, nic,
			"nic (build a1): the node went down during or soon after the last load; next try at 2026-03-01T12:05:00Z",
		},
		"two strikes": {
			func(t *testing.T, f *Fuse) { down(t, f, "2", t0); down(t, f, "3", t0.Add(RetryAfter)) }, time.Hour, nic,
			"nic (build a1): the node went down during or soon after a load, 2 times in a row; quarantined until 2026-03-02T12:05:00Z",
		},
		"a dump of the kernel": {
			func(t *testing.T, f *Fuse) { down(t, f, "2", t0, Evidence{Module: "nic"}) }, time.Hour, nic,
			"nic (build a1): the kernel crashed and named the module; quarantined until 2026-03-02T12:00:00Z",
		},
		"a load of another build that hangs": {
			func(t *testing.T, f *Fuse) {
				if err := f.Intent(nic, t0); err != nil {
					t.Fatal(err)
				}
			},
			time.Hour, Build{Module: "nic"}, "nic: an earlier load of nic (build a1) has not returned",
		},
		"a name that is not a module's": {
			func(*testing.T, *Fuse) {}, 0, Build{BuildID: "a1"}, `fuse: "" ("a1") is not a build of a module`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := opened(t, t.TempDir(), "1")
			c.given(t, f)
			if err := f.Intent(c.build, t0.Add(c.after)); err == nil || err.Error() != c.then {
				t.Errorf("got:\n%v\nwant:\n%s", err, c.then)
			}
		})
	}
	t.Run("a damaged file", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), []byte(`{"schema":1,"sha256":"00","state":{}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		const then = "fuse: fuse.json cannot be trusted and is not used: its content does not match its digest"
		if _, err := Open(dir, nil); err == nil || err.Error() != then {
			t.Errorf("got:\n%v\nwant:\n%s", err, then)
		}
	})
}
