// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/kcall"
)

const release = "6.1.0-1-test"

// stage is a host with modules, written to disk.
func stage(t *testing.T, program string, host fstest.MapFS) Stage {
	t.Helper()
	s := Stage{Temp: t.TempDir(), Kmod: program, HostModules: filepath.Join(t.TempDir(), "lib/modules", release), Release: release}
	for name, file := range host {
		if err := writeFile(filepath.Join(s.HostModules, name), strings.NewReader(string(file.Data))); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestStageStaysBelowItsDirectory whatever the image's directory is called.
func TestStageStaysBelowItsDirectory(t *testing.T) {
	for given, then := range map[string]string{"/opt": "/t/opt", "": "/t", "/": "/t", "../../etc": "/t/etc", "a//b/": "/t/a/b"} {
		if got := (Stage{Temp: "/t"}).Root(given); got != then {
			t.Errorf("%q: %s, want %s", given, got, then)
		}
	}
}

// program writes a script in kmod's place.
func program(t *testing.T, script string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kmod")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// content has an index, so that depmod is not run.
func content() Content {
	return Content{Dir: "/opt", Image: fstest.MapFS{"modules.dep.bin": &fstest.MapFile{Mode: 0o644}}}
}

func TestRunReadsWhatWentWrong(t *testing.T) {
	cases := map[string]struct {
		script string
		then   *Error
	}{
		"well": {script: "echo insmod /tmp/opt/x.ko"},
		"the kernel's refusal": {
			script: "echo insmod x; echo \"modprobe: ERROR: could not insert 'nic': Exec format error\" >&2; exit 1",
			then:   &Error{Module: "nic", Errno: "ENOEXEC", Said: "ERROR: could not insert 'nic': Exec format error"},
		},
		"no key": {
			script: "echo \"modprobe: ERROR: could not insert 'nic': Key was rejected by service\" >&2; exit 1",
			then:   &Error{Module: "nic", Errno: "EKEYREJECTED", Said: "ERROR: could not insert 'nic': Key was rejected by service"},
		},
		"a symbol": {
			script: "echo \"modprobe: ERROR: could not insert 'nic': Unknown symbol in module, or unknown parameter (see dmesg)\" >&2; exit 1",
			then: &Error{Module: "nic", Errno: "ENOENT", Said: "ERROR: could not insert 'nic': Unknown symbol in module, or unknown parameter " +
				"(see dmesg)"},
		},
		"in use": {
			script: "echo 'modprobe: FATAL: Module nic is in use.' >&2; exit 1",
			then:   &Error{Module: "nic", Errno: "EBUSY", Said: "FATAL: Module nic is in use."},
		},
		"not there": {
			script: "echo 'modprobe: FATAL: Module nic not found in directory /tmp/opt/lib/modules/x' >&2; exit 1",
			then:   &Error{Said: "FATAL: Module nic not found in directory /tmp/opt/lib/modules/x"},
		},
		"without a word":        {script: "exit 3", then: &Error{Said: "exit status 3"}},
		"killed, as by an oops": {script: "kill -9 $$", then: &Error{Said: "signal: killed", Killed: true}},
		"without an end of words": {
			script: "yes modprobe: talk | head -c 300000; exit 1",
			then:   &Error{Said: strings.Repeat("talk; ", 86)[:512] + "…"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Runner{Stage: stage(t, program(t, tc.script), nil), Children: kcall.Children{Deadline: time.Minute}}
			err := r.Run([]string{"nic"}, content())
			var failed *Error
			if errors.As(err, &failed) != (tc.then != nil) || tc.then == nil && err != nil {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tc.then, failed); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCommandLineReachesTheProgram word for word, in a group of its own, with the order's directory
// in its environment.
func TestCommandLineReachesTheProgram(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	s := stage(t, program(t, `printf '%s\n' "$@" > `+out+`; echo "$MODPROBE_OPTIONS" >> `+out+
		`; cat "$(echo $MODPROBE_OPTIONS | cut -d' ' -f2)"/softdep.conf >> `+out), nil)
	c := content()
	c.LoadOrder = []string{"a", "b", "c"}
	r := &Runner{Stage: s, Children: kcall.Children{Deadline: time.Minute}}
	if err := r.Run([]string{"-vd", "/tmp/opt", "a", "text=two words"}, c); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	want := "-vd\n/tmp/opt\na\ntext=two words\n-C " + s.Temp + "/opt/drover/modprobe.d\nsoftdep a pre: b\nsoftdep b pre: c\n"
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// TestHungModprobeIsLeftBehind and nothing is done in its layout before it ends.
func TestHungModprobeIsLeftBehind(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "go-on")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	r := &Runner{
		Stage:    stage(t, program(t, "read line < "+pipe), nil),
		Children: kcall.Children{Deadline: 50 * time.Millisecond, Returned: func() { close(ended) }},
	}
	if err := r.Run([]string{"nic"}, content()); !errors.Is(err, kcall.ErrLeftBehind) {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.Stage.Root("/opt"), "lib/modules", release)); err != nil {
		t.Errorf("its layout is gone: %v", err)
	}
	if err := r.Run([]string{"nic"}, content()); !errors.Is(err, kcall.ErrLeftBehind) {
		t.Errorf("a second one in the same layout: error %v", err)
	}
	if err := os.WriteFile(pipe, []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-ended
	r.Stage.Kmod, r.Deadline = program(t, "exit 0"), time.Minute
	if err := r.Run([]string{"nic"}, content()); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// TestModprobeThatCannotStart: it has said nothing about a module.
func TestModprobeThatCannotStart(t *testing.T) {
	r := &Runner{Stage: stage(t, "/does/not/exist", nil), Children: kcall.Children{Deadline: time.Minute}}
	if err := r.Run([]string{"a"}, content()); !errors.Is(err, kcall.ErrNotStarted) {
		t.Errorf("the error is %v", err)
	}
}
