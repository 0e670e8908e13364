// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain is the consumer itself in a process that TestConsumerEndsOnSIGTERM starts.
func TestMain(m *testing.M) {
	if os.Getenv("CONSUMER_MAIN") != "" {
		os.Args = []string{"consumer"}
		main()
		return
	}
	os.Exit(m.Run())
}

func TestDevices(t *testing.T) {
	environment := []string{
		"PATH=/bin", "ptemplate_1=/dev/ptemplate-1", "ptemplate_0=/dev/ptemplate-0", "ptemplate_2=/dev/ptemplate-0",
		"ptemplates_3=/dev/other", "ptemplate_4=relative", "he_sample_1=/dev/he_sample1", "camera=/dev/camera",
	}
	for prefix, want := range map[string][]string{
		"ptemplate": {"/dev/ptemplate-0", "/dev/ptemplate-1"},
		"he_sample": {"/dev/he_sample1"},
		"camera":    {"/dev/camera"},
		"gpu":       nil,
	} {
		if diff := cmp.Diff(want, devices(environment, prefix)); diff != "" {
			t.Errorf("devices of %s (-want +got):\n%s", prefix, diff)
		}
	}
}

// device is a file in a device's place.
func device(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ending is a place to print to that ends a context after some lines.
type ending struct {
	bytes.Buffer
	lines int
	end   context.CancelFunc
}

func (e *ending) Write(p []byte) (int, error) {
	if e.lines--; e.lines == 0 {
		e.end()
	}
	return e.Buffer.Write(p)
}

func TestConsumerReadsAgainAndAgain(t *testing.T) {
	for given, tc := range map[string]struct{ message, want, left string }{
		"nothing to say": {"", "\"hello\"", "hello"},
		"a message":      {"message", "\"message\"", "message"},
	} {
		t.Run(given, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			path := device(t, "hello")
			out := &ending{lines: 3, end: cancel}
			if err := rounds(ctx, out, []string{path}, tc.message, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			want := []string{path + ": \"hello\"", path + ": " + tc.want, path + ": " + tc.want}
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
			if left, err := os.ReadFile(path); err != nil || string(left) != tc.left {
				t.Errorf("the device holds %q, %v", left, err)
			}
		})
	}
}

func TestConsumerIsBounded(t *testing.T) {
	content, err := read("/dev/zero")
	if err != nil || len(content) != limit {
		t.Errorf("%d bytes of /dev/zero, %v; want %d", len(content), err, limit)
	}
}

func TestConsumerFails(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	for given, tc := range map[string]struct {
		args, environment []string
		is                error
	}{
		"no device":                {environment: []string{"PATH=/bin"}},
		"a device that is gone":    {environment: []string{"ptemplate_0=" + gone}, is: fs.ErrNotExist},
		"no time between readings": {args: []string{"--interval=0s"}, environment: []string{"ptemplate_0=/dev/null"}},
		"an unknown flag":          {args: []string{"--colour"}, environment: []string{"ptemplate_0=/dev/null"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := run(ctx, io.Discard, tc.args, tc.environment)
		if err == nil || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: error %v", given, err)
		}
		cancel()
	}
}

func TestConsumerEndsOnSIGTERM(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	talks := device(t, "hello")
	quiet := filepath.Join(filepath.Dir(talks), "quiet") // read after it
	if err := syscall.Mkfifo(quiet, 0o600); err != nil {
		t.Fatal(err)
	}
	for given, variables := range map[string][]string{
		"between two readings":         {"ptemplate_0=" + talks},
		"while a device keeps silence": {"ptemplate_0=" + talks, "ptemplate_1=" + quiet},
	} {
		program := exec.CommandContext(ctx, os.Args[0])
		program.Env = append(os.Environ(), append(variables, "CONSUMER_MAIN=1", "INTERVAL=1h")...)
		out, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Errorf("%s: it read nothing: %v", given, err)
		}
		if err := program.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := program.Wait(); err != nil {
			t.Errorf("%s: it ended with %v", given, err)
		}
	}
}
