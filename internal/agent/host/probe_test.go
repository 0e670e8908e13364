// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hostFiles lays out a host: its root as seen through its first process, and its sysfs. Values that
// begin with "->" are links.
func hostFiles(t *testing.T, files map[string]string) (root, sys string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(content, "->"); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "root"), filepath.Join(dir, "sys")
}

// null is a device on every machine that runs tests, on the way from <temporary folder>/root/dev.
func null(t *testing.T) string {
	t.Helper()
	return "->" + strings.Repeat("../", 32) + "dev/null"
}

func TestProbe(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		probe Probe
		ok    bool
		found string
	}{
		"a device": {
			files: map[string]string{"root/dev/gadget0": null(t)}, probe: Probe{DeviceNode: "/dev/gadget0"}, ok: true,
		},
		"one device of a pattern": {
			files: map[string]string{"root/dev/gadget0": "plain", "root/dev/gadget1": null(t)}, probe: Probe{DeviceNode: "/dev/gadget?"}, ok: true,
		},
		"a link to the host's own device": {
			files: map[string]string{"root/dev/real": null(t), "root/dev/by-id/x": "->/dev/real"}, probe: Probe{DeviceNode: "/dev/by-id/x"},
			ok: true,
		},
		"a link to what only this container has": {
			files: map[string]string{"root/dev/x": "->/dev/null"}, probe: Probe{DeviceNode: "/dev/x"}, found: "/dev/x is not a device",
		},
		"links in a circle": {
			files: map[string]string{"root/dev/x": "->x"}, probe: Probe{DeviceNode: "/dev/x"}, found: "/dev/x is not a device",
		},
		"no device": {
			files: map[string]string{"root/dev/other": "", "sys/dev/char/1:1/uevent": "DEVNAME=gadget0\n"}, probe: Probe{DeviceNode: "/dev/gadget0"},
		},
		"a plain file": {
			files: map[string]string{"root/dev/gadget0": "plain"}, probe: Probe{DeviceNode: "/dev/gadget0"}, found: "/dev/gadget0 is not a device",
		},
		"the host's /dev is out of sight": {
			files: map[string]string{"sys/dev/char/1:1/uevent": "MAJOR=1\nDEVNAME=bus/gadget0\n", "sys/dev/block/7:0/uevent": "DEVNAME=loop0\n"},
			probe: Probe{DeviceNode: "/dev/bus/gadget*"}, ok: true,
		},
		"and the kernel knows no such device": {
			files: map[string]string{"sys/dev/char/1:1/uevent": "DEVNAME=bus/gadget0\n", "sys/dev/block/7:0/uevent": "DEVNAME=loop0\n"},
			probe: Probe{DeviceNode: "/dev/gadget0"},
		},
		"a malformed pattern": {
			files: map[string]string{"root/dev/x": ""}, probe: Probe{DeviceNode: "/dev/["}, found: "syntax error in pattern",
		},
		"a value": {
			files: map[string]string{"sys/class/gadget/g0/state": "up\n"}, probe: Probe{Sysfs: "/sys/class/gadget/*/state", Value: "up"}, ok: true,
		},
		"another value": {
			files: map[string]string{"sys/class/gadget/g0/state": "down\n"}, probe: Probe{Sysfs: "/sys/class/gadget/g0/state", Value: "up"},
			found: `/sys/class/gadget/g0/state holds "down"`,
		},
		"no such file": {probe: Probe{Sysfs: "/sys/class/gadget/g0/state", Value: "up"}},
		"a folder that exists": {
			files: map[string]string{"sys/class/gadget/g0/state": ""}, probe: Probe{Sysfs: "/sys/class/gadget/g0"}, ok: true,
		},
		"the value of a folder": {
			files: map[string]string{"sys/class/gadget/g0/state": ""}, probe: Probe{Sysfs: "/sys/class/gadget/g0", Value: "up"},
			found: "/sys/class/gadget/g0: is not a file",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root, sys := hostFiles(t, tc.files)
			ok, found := (&Prober{Root: root, Sys: sys}).Look(tc.probe)
			if ok != tc.ok || found != tc.found {
				t.Errorf("ok %v, found %q; want %v, %q", ok, found, tc.ok, tc.found)
			}
		})
	}
}

// TestProbeReadsNoSecrets: what not every process may read is not read for whoever may write a
// Module.
func TestProbeReadsNoSecrets(t *testing.T) {
	root, sys := hostFiles(t, map[string]string{"sys/module/gadget/parameters/key": "secret"})
	if err := os.Chmod(filepath.Join(sys, "module/gadget/parameters/key"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok, found := (&Prober{Root: root, Sys: sys}).Look(Probe{Sysfs: "/sys/module/gadget/parameters/key", Value: "secret"})
	if ok || !strings.Contains(found, "not everybody may read it") {
		t.Errorf("ok %v, found %q", ok, found)
	}
}

// TestProbeDoesNotHang: a driver that does not answer holds up one look for a moment, and the next
// not at all, until it does.
func TestProbeDoesNotHang(t *testing.T) {
	root, sys := hostFiles(t, map[string]string{"sys/class/gadget/state": "up"})
	p := &Prober{Root: root, Sys: sys}
	name, probe := filepath.Join(sys, "class/gadget/state"), Probe{Sysfs: "/sys/class/gadget/state", Value: "up"}
	p.stuck = map[string]bool{name: true} // an earlier read has not returned
	began := time.Now()
	if ok, found := p.Look(probe); ok || !strings.Contains(found, "does not answer") {
		t.Errorf("ok %v, found %q", ok, found)
	}
	if time.Since(began) >= attributeDeadline {
		t.Error("waited for a driver that is known to hang")
	}
	p.stuck = nil
	if ok, found := p.Look(probe); !ok || len(p.stuck) != 0 {
		t.Errorf("ok %v, found %q, stuck %v after it answered", ok, found, p.stuck)
	}
}
