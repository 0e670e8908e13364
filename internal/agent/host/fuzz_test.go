// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzModules: /proc/modules names nothing that it does not hold.
func FuzzModules(f *testing.F) {
	f.Add("loop 40960 2 - Live 0xffffffffc0a00000\nnvme 1 0 - Loading 0x0\nx 1 0 - Unloading 0x0 (OE)\n")
	f.Add("a b c d\n\n \t\n")
	f.Fuzz(func(t *testing.T, data string) {
		for name, state := range parseModules(data) {
			if name == "" || !strings.Contains(data, name) || strings.ContainsAny(name, " \t\n") {
				t.Errorf("module %q", name)
			}
			if state != StateLive && state != StateComing && state != StateGoing {
				t.Errorf("state %q", state)
			}
		}
	})
}

// asTheKernel writes a path as the kernel's mangle_path does.
var asTheKernel = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// FuzzMounts: a mount is read as it is, whatever its names are.
func FuzzMounts(f *testing.F) {
	f.Add("/", "/var/lib/kubelet/pods/x y", "ext4", "8:1")
	f.Add("/a\\040b", "/voil\u00e0\u00a0\u0085", "fuse.x", "0:44")
	f.Add("/\u2028", "/ - ", "xfs", "259:1")
	f.Fuzz(func(t *testing.T, root, point, kind, device string) {
		if !strings.HasPrefix(root, "/") || !strings.HasPrefix(point, "/") || strings.ContainsRune(root+point, 0) || kind == "" || device == "" ||
			strings.ContainsFunc(kind+device, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Skip("the kernel has no such mount")
		}
		file := filepath.Join(t.TempDir(), "mountinfo")
		line := fmt.Sprintf("36 35 %s %s %s rw,noatime shared:1 master:2 - %s /dev/sda1 rw\n", device, asTheKernel.Replace(root),
			asTheKernel.Replace(point), kind)
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := Mounts(file)
		if want := (Mount{Root: root, Point: point, Kind: kind, device: device}); err != nil || len(all) != 1 || all[0] != want {
			t.Errorf("%q is read as %+v, %v", line, all, err)
		}
	})
}

// FuzzMountsOfAnything: what is no mount is none, and nothing is made up.
func FuzzMountsOfAnything(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add(" - \n - x\n1 2 3 4 5 - \n")
	f.Fuzz(func(t *testing.T, content string) {
		file := filepath.Join(t.TempDir(), "mountinfo")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := Mounts(file)
		if err != nil || len(all) > strings.Count(content, " - ") {
			t.Errorf("%d mounts, %v", len(all), err)
		}
	})
}

// FuzzLog: new lines of the kernel's log are bounded, of UTF-8, and none without new text.
func FuzzLog(f *testing.F) {
	f.Add("<6>[    1.000000] old\n", "<6>[    2.000000][  T99] drv: bad address 0xffffffffc0a00000\n")
	f.Add("", "\xff\xfe\n\n[ 0.0]\n")
	f.Fuzz(func(t *testing.T, before, more string) {
		lines := newLines(before, before+more)
		if len(lines) > maxLogLines || len(strings.Join(lines, "\n")) > maxLogBytes {
			t.Errorf("%d lines", len(lines))
		}
		for _, line := range lines {
			if !utf8.ValidString(line) || strings.TrimSpace(line) == "" {
				t.Errorf("line %q", line)
			}
		}
		whole := "[    1.000000] the last line\n"
		if lines := newLines(before+whole, before+whole); len(lines) > 0 {
			t.Errorf("%q is new", lines)
		}
	})
}

// FuzzPodUID: what is taken for a UID is one, and is in the text.
func FuzzPodUID(f *testing.F) {
	f.Add("0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b2c3d_0000_4000_8000_000000000001.slice/x\n")
	f.Add("12:pids:/kubepods/pod0a1b2c3d-0000-4000-8000-000000000001/abc\n")
	f.Fuzz(func(t *testing.T, cgroup string) {
		uid := podUID(cgroup)
		if uid == "" {
			return
		}
		if (len(uid) != 36 && len(uid) != 32) || strings.Trim(uid, "0123456789abcdef-") != "" ||
			!strings.Contains(strings.ReplaceAll(cgroup, "_", "-"), "pod"+uid) {
			t.Errorf("UID %q", uid)
		}
	})
}

// FuzzDevices: /proc/devices gives names by kind and number.
func FuzzDevices(f *testing.F) {
	f.Add("Character devices:\n  1 mem\n 10 misc\n\nBlock devices:\n  8 sd\n259 blkext\n")
	f.Fuzz(func(t *testing.T, data string) {
		for key, drivers := range parseDevices(data) {
			for _, name := range drivers {
				if !strings.Contains(data, strings.TrimLeft(key, "cb")) || !strings.Contains(data, name) {
					t.Errorf("%q: %q", key, name)
				}
			}
		}
	})
}

// FuzzDumps: no text of a crash dump is lost when its parts are joined.
func FuzzDumps(f *testing.F) {
	f.Add("Panic#1 Part2\nold\n", "Panic#1 Part1\nnew\n", int64(0))
	f.Add("Oops#1 Part99999999999999999999\n", "plain", int64(90))
	f.Add("Panic#1 Part1\r\nx", "Panic#1 Part1\r\ny", int64(-1))
	f.Fuzz(func(t *testing.T, one, two string, apart int64) {
		at := time.Unix(1_700_000_000, 0)
		given := []part{parsePart(one, at), parsePart(two, at.Add(time.Duration(apart%1000)*time.Second))}
		size := 0
		dumps := joinParts(given)
		for i, d := range dumps {
			size += len(d.Text)
			if i > 0 && d.Time.After(dumps[i-1].Time) {
				t.Error("the newest is not the first")
			}
		}
		for _, p := range given {
			if p.text != "" && !strings.Contains(dumps[0].Text+"\x00"+dumps[len(dumps)-1].Text, p.text) {
				t.Errorf("%q is lost", p.text)
			}
		}
		if most := len(one) + len(two) + 1; size > most {
			t.Errorf("%d bytes of %d", size, most)
		}
	})
}
