// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, root, name, content string) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestParseModules(t *testing.T) {
	given := `videodev 311296 1 v4l2loopback, Live 0xffffffffc0a00000
slow 16384 1 - Loading 0xffffffffc0a10000 (OE+)
old 16384 0 - Unloading 0xffffffffc0a20000 (E-)
short
`
	want := map[string]State{"videodev": StateLive, "slow": StateComing, "old": StateGoing}
	if diff := cmp.Diff(want, parseModules(given)); diff != "" {
		t.Error(diff)
	}
}

func note(kind uint32, name string, id []byte) string {
	b := binary.NativeEndian.AppendUint32(nil, uint32(len(name)))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(id)))
	b = binary.NativeEndian.AppendUint32(b, kind)
	b = append(b, name...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return string(append(b, id...))
}

func TestReadModule(t *testing.T) {
	root := t.TempDir()
	write(t, root, "gadget/initstate", "live\n")
	write(t, root, "gadget/refcnt", "2\n")
	write(t, root, "gadget/taint", "OE\n")
	write(t, root, "gadget/holders/rider", "")
	write(t, root, "gadget/parameters/size", "31\n")
	write(t, root, "gadget/parameters/text", "a b\n")
	write(t, root, "gadget/parameters/key", "secret\n")
	if err := os.Chmod(filepath.Join(root, "gadget/parameters/key"), 0o400); err != nil {
		t.Fatal(err)
	}
	write(t, root, "gadget/notes/.note.gnu.build-id", note(3, "GNU\x00", []byte{0xca, 0xfe, 1, 2}))
	write(t, root, "builtin/parameters/x", "1\n")

	got, ok, err := readModule(root, "gadget", new(Prober).within)
	if err != nil || !ok {
		t.Fatalf("ok %v, err %v", ok, err)
	}
	want := Module{
		Name: "gadget", State: StateLive, BuildID: "cafe0102", RefCount: 2, Holders: []string{"rider"}, Taint: "OE",
		Parameters: map[string]string{"size": "31", "text": "a b", "key": "secret"}, Private: []string{"key"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"builtin", "absent"} {
		if _, ok, err := readModule(root, name, new(Prober).within); ok || err != nil {
			t.Errorf("%s: ok %v, err %v", name, ok, err)
		}
	}
}

func TestBuildIDOfOddNotes(t *testing.T) {
	for name, given := range map[string]string{
		"empty": "", "cut short": note(3, "GNU\x00", make([]byte, 20))[:30], "another type": note(1, "GNU\x00", []byte{1}),
		"sizes that overflow": strings.Repeat("\xff", 40),
	} {
		root := t.TempDir()
		write(t, root, "gadget/initstate", "live\n")
		write(t, root, "gadget/notes/.note.gnu.build-id", given)
		if got, ok, err := readModule(root, "gadget", new(Prober).within); got.BuildID != "" || !ok || err != nil {
			t.Errorf("%s: %q, %v, %v", name, got.BuildID, ok, err)
		}
	}
}

func TestNewLines(t *testing.T) {
	const before = "<6>[    1.000001] boot\n<6>[    2.000002] done\n"
	long := strings.Repeat("<4>[    4.0] "+strings.Repeat("x", 300)+"\n", 5)
	cases := map[string]struct {
		before, after string
		then          []string
	}{
		"only what is new": {before, before + "<3>[    3.500000] gadget: version magic '1' should be '2'\n",
			[]string{"gadget: version magic '1' should be '2'"}},
		"nothing new": {before, before, nil},
		"addresses differ each time": {before, before + "<4>[    3.1] gadget: at ffffffffc0a00000 and 0x00000000deadbeef\n",
			[]string{"gadget: at <address> and <address>"}},
		"caller and no level":    {before, before + "[    3.1][ T1234] gadget: hello\n", []string{"gadget: hello"}},
		"the buffer has wrapped": {before, "<6>[    9.0] other\n", []string{"other"}},
		"no log before":          {"", "<6>[    9.0] other\n", []string{"other"}},
		"not the privilege":      {"", "", nil},
		"at most 1 KiB":          {before, before + long, []string{strings.Repeat("x", 300), strings.Repeat("x", 300), strings.Repeat("x", 300)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.then, newLines(tc.before, tc.after), cmp.Transformer("nil", func(s []string) []string {
				return append([]string{}, s...)
			})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCallErrorMatchesByErrno(t *testing.T) {
	var err error = &CallError{Call: "delete_module", Module: "m", Errno: "EBUSY"}
	if !errors.Is(err, Errno("EBUSY")) || errors.Is(err, Errno("EAGAIN")) {
		t.Error("errors.Is does not go by the errno")
	}
}

func TestAwaitReady(t *testing.T) {
	root, sys := t.TempDir(), t.TempDir()
	p := &Prober{Root: root, Sys: sys}
	probes := []Probe{{Sysfs: "/sys/class/gadget/state", Value: "up"}, {DeviceNode: "/dev/gadget0"}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.AwaitReady(ctx, "my-gadget", probes) }()
	for file, value := range map[string]string{"module/my_gadget/initstate": "coming\n", "class/gadget/state": "down\n"} {
		write(t, sys, file, value)
		select {
		case err := <-done:
			t.Fatalf("did not wait: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
	}
	write(t, sys, "module/my_gadget/initstate", "live\n")
	write(t, sys, "class/gadget/state", "up\n")
	select {
	case err := <-done:
		t.Fatalf("did not wait for the device node: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	write(t, root, "dev/other", "")
	if err := os.Symlink(strings.Repeat("../", 32)+"dev/null", filepath.Join(root, "dev/gadget0")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	write(t, sys, "module/builtin/parameters/x", "1\n")
	if err := p.AwaitReady(ctx, "builtin", nil); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.AwaitReady(short, "absent", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("err %v", err)
	}
}

// TestLeavingModule: a look at /sys while a module leaves the kernel is no failure of the agent's.
func TestLeavingModule(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false,
		&fs.PathError{Op: "open", Path: "/sys/module/gadget/initstate", Err: syscall.ENOENT}: true,
		&fs.PathError{Op: "read", Path: "/sys/module/gadget/initstate", Err: syscall.ENODEV}: true,
		&fs.PathError{Op: "read", Path: "/sys/module/gadget/initstate", Err: syscall.EIO}:    false,
	} {
		if got := gone(err); got != want {
			t.Errorf("%v: gone is %v, want %v", err, got, want)
		}
	}
}
