// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/watchdog"
)

// asProgram makes the test's own binary the program.
const asProgram = "DROVER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is drover-agent on a host that is a directory, with an order for a module that is live.
type process struct {
	t     *testing.T
	root  string
	state string
	said  bytes.Buffer
}

func newProcess(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, root: t.TempDir(), state: filepath.Join(t.TempDir(), "state")}
	const release = "6.1.0-1-test"
	p.file("proc/sys/kernel/osrelease", release+"\n")
	p.file("proc/sys/kernel/random/boot_id", "a-boot\n")
	p.file("proc/modules", "gadget 16384 0 - Live 0x0\n")
	p.file("sys/module/gadget/initstate", "live\n")
	p.file("sys/module/gadget/refcnt", "0\n")
	order := v1beta1.NodeModuleSpec{ModuleItem: v1beta1.ModuleItem{Namespace: "ns", Name: "gadget"}}
	order.Config.KernelVersion, order.Config.Modprobe.ModuleName = release, "gadget"
	for dir, state := range map[string]struct {
		file    string
		schema  int
		content any
	}{
		p.state: {"boot.json", 1, map[string]string{"manifests": p.root}},
		filepath.Join(p.state, "agent"): {"record.json", 2, map[string]any{"clusterUID": "c", "nodeName": "n",
			"spec": v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{order}}}},
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := statefile.Write(dir, state.file, state.schema, state.content, statefile.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *process) file(name, content string) {
	p.t.Helper()
	name = filepath.Join(p.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

// hangs makes reads of a file of the host hang, as a driver can: a pipe without a writer.
func (p *process) hangs(name string) string {
	p.t.Helper()
	name = filepath.Join(p.root, name)
	_ = os.Remove(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), syscall.Mkfifo(name, 0o644)); err != nil {
		p.t.Fatal(err)
	}
	return name
}

func (p *process) start(args ...string) *exec.Cmd {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	p.t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self, append(args, "--node-name=n", "--host-root="+p.root, "--state-dir="+p.state,
		"--boot-manifest-dir="+p.root, "--firmware-dir=/firmware", "--kernel-call-deadline=1s")...)
	c.Env = append(os.Environ(), asProgram+"=1")
	c.Stderr = &p.said
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// TestAHungAgentEnds: what it said last names the step, and its log the place.
func TestAHungAgentEnds(t *testing.T) {
	for file, want := range map[string][]string{
		"sys/module/gadget/initstate":    {"no progress for 2s in this step: the facts about ns/gadget", "internal/agent/host.readModule"},
		"proc/sys/kernel/random/boot_id": {"no progress for 2s in this step: the start", "BootID"},
	} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p := newProcess(t)
			p.hangs(file)
			err := p.start("boot", "--progress-deadline=2s").Wait()
			if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("it ended with %v, want exit code 1", err)
			}
			for _, w := range want {
				if !strings.Contains(p.said.String(), w) {
					t.Errorf("it does not say %q:\n%s", w, &p.said)
				}
			}
		})
	}
}

// TestASignalWhileAReadHangs: the agent ends in its pod's grace period, in order.
func TestASignalWhileAReadHangs(t *testing.T) {
	p := newProcess(t)
	pipe := p.hangs("sys/module/gadget/parameters/size")
	c, begun := p.start("boot"), time.Now()
	for { // until the agent reads it
		writer, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			defer func() { _ = writer.Close() }() // the read hangs until then
			break
		}
		if !errors.Is(err, syscall.ENXIO) || time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, &p.said)
	}
	if took := time.Since(begun); took > 60*time.Second {
		t.Errorf("it ended %s after the signal", took)
	}
}

func TestProgressDeadline(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"boot"}} {
		c := root()
		c.SetArgs(append(args, "--kernel-call-deadline=2m", "--progress-deadline=2m"))
		err := c.ExecuteContext(t.Context())
		const want = "--progress-deadline is 2m0s and must be more than --kernel-call-deadline (2m0s), which one step may lawfully take"
		if err == nil || err.Error() != want {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}

func TestUsualProgressDeadline(t *testing.T) {
	for call, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Minute, 15 * time.Minute: 30 * time.Minute} {
		o, worked := &nodeOptions{callDeadline: call}, false
		if err := o.watched(t.Context(), func() error { worked = true; return nil }); err != nil || !worked || o.progressDeadline != want {
			t.Errorf("calls of %s: %v, worked %t, progress %s, want %s", call, err, worked, o.progressDeadline, want)
		}
	}
}

func TestLastWords(t *testing.T) {
	hung := &watchdog.HungError{Doing: "the load of gadget for ns/gadget", Limit: 10 * time.Minute}
	name := filepath.Join(t.TempDir(), "termination-log")
	if err := leaveWord(name, hung); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("outside a container, it made the file: %v", err)
	}
	if err := os.WriteFile(name, []byte("of another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := leaveWord(name, hung); err != nil {
		t.Error(err)
	}
	said, err := os.ReadFile(name)
	const want = "the agent has made no progress for 10m0s in this step: the load of gadget for ns/gadget. It ended itself, to be " +
		"started again; what is loaded stays. Its log shows where it hung.\n"
	if string(said) != want || err != nil {
		t.Errorf("%q, %v", said, err)
	}
}

func TestOwnStacks(t *testing.T) {
	const dump = "goroutine 7 [running]:\nmain.stacks()\n\t/src/internal/agent/x.go\n\n" +
		"goroutine 1 [syscall]:\nos.ReadFile()\ngithub.com/drover-project/drover/internal/agent/host.readModule()\n\n" +
		"goroutine 2 [select]:\nk8s.io/client-go/tools/cache.(*Reflector).watch()\n"
	const want = "goroutine 1 [syscall]:\nos.ReadFile()\ngithub.com/drover-project/drover/internal/agent/host.readModule()"
	if got := ownStacks(dump); got != want {
		t.Errorf("%q", got)
	}
	long := dump + strings.Repeat("\n\ngoroutine 3 [running]:\n/internal/agent/host", 10000)
	if got := ownStacks(long); len(got) > maxStacks+len("…") || !strings.HasPrefix(got, want) {
		t.Errorf("%d bytes: %.200q", len(got), got)
	}
}
