// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package process starts child processes that cannot outlive this one.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Child is a running process.
type Child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// starter runs one function after the other on one thread that lives as long
// as this process: the kernel sends a child its parent-death signal when the
// *thread* that started it ends, and Go ends threads as it pleases.
var starter = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

// Start starts cmd in a process group of its own, so that an interrupt from
// the terminal reaches only this process, which then stops its children in
// order. When this process dies, whatever the reason, the kernel kills the
// child.
func Start(cmd *exec.Cmd) (*Child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	starter() <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	child := &Child{cmd: cmd, done: make(chan struct{})}
	go func() {
		child.err = cmd.Wait()
		close(child.done)
	}()
	return child, nil
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// PID is the process's ID.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill ends the process at once and waits until it is gone.
func (c *Child) Kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", c.PID(), err)
	}
	<-c.done
	return nil
}
