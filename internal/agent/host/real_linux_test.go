// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/kcall"
)

// TestMain plays the child when this test binary is started as one.
func TestMain(m *testing.M) {
	switch os.Getenv("TEST_KCALL") {
	case "":
		os.Exit(m.Run())
	case "real":
		if err := kcall.Run(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "hang":
		// Until the test lets go of standard input's other end: the file whose name is in TEST_HANG
		// appears.
		for start := time.Now(); time.Since(start) < time.Minute; {
			if _, err := os.Stat(os.Getenv("TEST_HANG")); err == nil {
				break
			}
		}
		fmt.Println(`{}`)
	case "record":
		request, err := io.ReadAll(os.Stdin)
		if err == nil {
			err = os.WriteFile(os.Getenv("TEST_RECORD"), request, 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(`{}`)
	case "lack":
		os.Exit(2)
	case "oops":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

func realHost(t *testing.T, deadline time.Duration) *Real {
	t.Helper()
	root := t.TempDir()
	write(t, root, "proc/sys/kernel/osrelease", "6.1.0-1-test\n")
	write(t, root, "proc/sys/kernel/random/boot_id", "0f7a3c5e-1111-4222-8333-444455556666\n")
	write(t, root, "proc/modules", "gadget 16384 0 - Live 0x0 (OE)\n")
	write(t, root, "lib/modules/6.1.0-1-test/modules.builtin", "kernel/drivers/base/built-in-thing.ko\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(Options{Root: root, Command: []string{self}, Deadline: deadline})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRealFacts(t *testing.T) {
	h := realHost(t, time.Minute)
	boot, err := h.BootID()
	if err != nil || boot != "0f7a3c5e-1111-4222-8333-444455556666" || h.Release() != "6.1.0-1-test" {
		t.Errorf("boot %q, release %q, err %v", boot, h.Release(), err)
	}
	if m, err := h.Modules(); err != nil || m["gadget"] != StateLive {
		t.Errorf("modules %v, err %v", m, err)
	}
	for name, want := range map[string]bool{"built_in_thing": true, "built-in-thing": true, "gadget": false} {
		if got, err := h.BuiltIn(name); err != nil || got != want {
			t.Errorf("built in %s: %v, err %v", name, got, err)
		}
	}
}

// TestBuiltInByTheIndex: a directory in /sys/module without initstate may be one of a module that
// comes or goes.
func TestBuiltInByTheIndex(t *testing.T) {
	given := func(t *testing.T, index bool) *Real {
		root := t.TempDir()
		for _, dir := range []string{"proc/sys/kernel", "sys/module/gadget/holders", "lib/modules/6.1.0"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		files := map[string]string{"proc/sys/kernel/osrelease": "6.1.0\n"}
		if index {
			files["lib/modules/6.1.0/modules.builtin"] = "kernel/thing.ko\n"
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		h, err := New(Options{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	cases := map[string]struct {
		index bool
		then  map[string]bool
	}{
		"with an index":    {index: true, then: map[string]bool{"thing": true, "gadget": false, ".": false, "..": false}},
		"without an index": {then: map[string]bool{"thing": false, "gadget": true, ".": false, "..": false, "gadget/holders": false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := given(t, tc.index)
			for module, want := range tc.then {
				if got, err := h.BuiltIn(module); err != nil || got != want {
					t.Errorf("built in %q: %v, %v", module, got, err)
				}
			}
		})
	}
}

// TestRealCallIsRefused makes real system calls that no kernel grants: a file that is no module, a
// module that is not there. Without the privilege the kernel says EPERM before it looks.
func TestRealCallIsRefused(t *testing.T) {
	t.Setenv("TEST_KCALL", "real")
	h := realHost(t, time.Minute)
	name := filepath.Join(t.TempDir(), "junk.ko")
	if err := os.WriteFile(name, []byte("not a module"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	for call, err := range map[string]error{
		"finit_module":  h.Load(t.Context(), LoadRequest{Name: "junk", File: file}),
		"delete_module": h.Unload(t.Context(), UnloadRequest{Name: "no-such-module-anywhere"}),
	} {
		var refused *CallError
		if !errors.As(err, &refused) || refused.Call != call || !strings.HasPrefix(refused.Errno, "E") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestParametersOfTheCommandLine: they are passed before those of the Module, which count more.
func TestParametersOfTheCommandLine(t *testing.T) {
	record := filepath.Join(t.TempDir(), "request")
	t.Setenv("TEST_KCALL", "record")
	t.Setenv("TEST_RECORD", record)
	h := realHost(t, time.Minute)
	write(t, h.root, "proc/cmdline", "ro other.a=1 nic-card.size=3 nic_card.text=\"a b\"\n")
	write(t, h.root, "nic.ko", "\x7fELF")
	file, err := os.Open(filepath.Join(h.root, "nic.ko"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := h.Load(t.Context(), LoadRequest{Name: "nic_card", File: file, Params: []string{"size=4"}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var asked kcall.Request
	if err := json.Unmarshal(text, &asked); err != nil {
		t.Fatal(err)
	}
	if want := []string{"size=3", `text="a b"`, "size=4"}; asked.Load == nil || !slices.Equal(asked.Load.Params, want) {
		t.Errorf("%s, want %q", text, want)
	}
}

func TestChildThatHangsIsLeftBehind(t *testing.T) {
	let := filepath.Join(t.TempDir(), "go")
	t.Setenv("TEST_KCALL", "hang")
	t.Setenv("TEST_HANG", let)
	h := realHost(t, 200*time.Millisecond)
	changes, err := h.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unload(t.Context(), UnloadRequest{Name: "gadget"}); !errors.Is(err, ErrTimeout) {
		t.Fatalf("err %v", err)
	}
	// As long as it hangs, the module gets no other call.
	if err := h.Unload(t.Context(), UnloadRequest{Name: "gadget"}); !errors.Is(err, ErrTimeout) {
		t.Fatalf("second call: %v", err)
	}
	write(t, let, "", "")
	select {
	case <-changes:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody was told that the child came back")
	}
}

func TestChildThatDies(t *testing.T) {
	t.Setenv("TEST_KCALL", "oops")
	h := realHost(t, time.Minute)
	err := h.Unload(t.Context(), UnloadRequest{Name: "gadget"})
	var exit *exec.ExitError
	var died *DiedError
	if !errors.As(err, &exit) || !errors.As(err, &died) || died.Module != "gadget" {
		t.Fatalf("err %v", err)
	}
}

// TestChildThatLacksThreads: a Go program that cannot make threads ends by itself, with the code 2.
// Nothing has been asked of the kernel.
func TestChildThatLacksThreads(t *testing.T) {
	t.Setenv("TEST_KCALL", "lack")
	err := realHost(t, time.Minute).Unload(t.Context(), UnloadRequest{Name: "gadget"})
	if !errors.Is(err, ErrNotMade) || errors.As(err, new(*DiedError)) {
		t.Fatalf("err %v", err)
	}
}
