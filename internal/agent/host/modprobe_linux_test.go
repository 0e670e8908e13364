// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/drover-project/drover/internal/agent/modprobe"
)

// TestModprobeSpeaksLikeTheKernel: what the program says of the kernel's answer is the error of a
// kernel call.
func TestModprobeSpeaksLikeTheKernel(t *testing.T) {
	cases := map[string]struct {
		script   string
		deadline time.Duration
		holds    func(error) bool
	}{
		"well": {"exit 0", time.Minute, func(err error) bool { return err == nil }},
		"a refusal": {
			"echo \"modprobe: ERROR: could not insert 'my-dep': No such device\" >&2; exit 1", time.Minute,
			func(err error) bool {
				var call *CallError
				return errors.As(err, &call) && call.Call == "modprobe" && call.Module == "my_dep" && call.Errno == "ENODEV"
			},
		},
		"in use": {"echo 'modprobe: FATAL: Module nic is in use.' >&2; exit 1", time.Minute,
			func(err error) bool { return errors.Is(err, Errno("EBUSY")) }},
		"words that say no errno": {
			"echo 'modprobe: FATAL: Module nic not found in directory /x' >&2; exit 1", time.Minute,
			func(err error) bool {
				var call *CallError
				return err != nil && !errors.As(err, &call) && strings.Contains(err.Error(), "not found in directory /x")
			},
		},
		"no end": {"read line < $0.pipe", time.Millisecond, func(err error) bool { return errors.Is(err, ErrTimeout) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root, program := t.TempDir(), filepath.Join(t.TempDir(), "kmod")
			write(t, root, "proc/sys/kernel/osrelease", "6.1.0\n")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			r, err := New(Options{Root: root, Kmod: program, Deadline: tc.deadline})
			if err != nil {
				t.Fatal(err)
			}
			r.modprobe.Stage.Temp = t.TempDir()
			if name == "no end" {
				pipe := program + ".pipe"
				if err := syscall.Mkfifo(pipe, 0o600); err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{})
				r.modprobe.Returned = func() { close(ended) }
				defer func() {
					if err := os.WriteFile(pipe, []byte("go\n"), 0o600); err != nil {
						t.Error(err)
					}
					<-ended
				}()
			}
			err = r.Modprobe(t.Context(), ModprobeRequest{
				Args: []string{"nic"}, Content: modprobe.Content{
					Dir: "/opt", Modules: []string{"nic"}, Image: fstest.MapFS{"modules.dep.bin": &fstest.MapFile{Mode: 0o644}},
				},
			})
			if !tc.holds(err) || !r.HasModprobe() {
				t.Errorf("error %v, has modprobe %t", err, r.HasModprobe())
			}
		})
	}
	root := t.TempDir()
	write(t, root, "proc/sys/kernel/osrelease", "6.1.0\n")
	if r, err := New(Options{Root: root, Kmod: "/does/not/exist"}); err != nil || r.HasModprobe() {
		t.Errorf("a program that is not there was found; error %v", err)
	}
}
