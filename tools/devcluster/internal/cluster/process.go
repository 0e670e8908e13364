// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/drover-project/drover/tools/devcluster/internal/lifeline"
)

// patience is how long a process may take to end after SIGTERM, before
// SIGKILL. Nothing is lost then: the data is either kept by etcd's own log or
// thrown away.
const patience = 3 * time.Second

// process is a running component.
type process struct {
	name string
	log  string
	spec spec
	cmd  *exec.Cmd
	// wanted is set before the process is told to end: its end is no failure
	// then.
	wanted atomic.Bool
	// done is closed when the process has ended and is reaped.
	done chan struct{}
	// result is how it ended; read it after done.
	result error
}

// spec says how to start a component.
type spec struct {
	name string
	// binary holds the component; empty: this same one.
	binary string
	args   []string
	env    []string
	// ownMounts gives the process a mount namespace of its own (Linux).
	ownMounts bool
}

// launch starts the binary under the component's name, tied to the rope,
// with its output in dir.
func launch(rope *lifeline.Rope, dir string, s spec) (*process, error) {
	binary := s.binary
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the own binary: %w", err)
		}
		binary = self
	}
	p := &process{name: s.name, spec: s, log: filepath.Join(dir, s.name+".log"), done: make(chan struct{})}
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", s.name, err)
	}
	// The child has its own descriptor.
	defer func() { _ = output.Close() }()

	p.cmd = exec.Command(binary, s.args...)
	p.cmd.Args[0] = s.name
	p.cmd.Dir = dir
	// etcd takes its flags from the environment too.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ETCD_") })
	p.cmd.Env = append(p.cmd.Env, s.env...)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	// A group of its own: Ctrl-C on the terminal reaches the starter alone,
	// which then stops the components in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.ownMounts {
		unshareMounts(p.cmd.SysProcAttr)
	}
	rope.Tie(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	go func() {
		p.result = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// pid is the process's id.
func (p *process) pid() int { return p.cmd.Process.Pid }

// terminate asks the process to end.
func (p *process) terminate() error {
	p.wanted.Store(true)
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return nil
}

// await waits until the process is gone, and kills it when that takes too long.
func (p *process) await() error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// DiedError tells that a component ended on its own.
type DiedError struct {
	// Component is its name.
	Component string
	// Result is how it ended.
	Result error
	// Tail is the end of its log.
	Tail string
}

// Error shows the end of the log: it holds the reason.
func (e *DiedError) Error() string {
	how := "exit status 0"
	if e.Result != nil {
		how = e.Result.Error()
	}
	return fmt.Sprintf("%s ended: %s; the end of its log:\n%s", e.Component, how, e.Tail)
}

// Unwrap is how the process ended.
func (e *DiedError) Unwrap() error { return e.Result }

// portLost tells whether the component died because its port was taken between
// the choice and the use.
func (e *DiedError) portLost() bool {
	return strings.Contains(e.Tail, "address already in use")
}

// died describes a process that has ended.
func (p *process) died() *DiedError {
	return &DiedError{Component: p.name, Result: p.result, Tail: tail(p.log)}
}

// tail returns the last few kilobytes of a file, from a line's start on.
func tail(path string) string {
	const size = 4 << 10
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(content) <= size {
		return string(content)
	}
	_, rest, _ := strings.Cut(string(content[len(content)-size:]), "\n")
	return rest
}
