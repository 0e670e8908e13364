// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

var errExited = errors.New("exit status 0")

// Process is a child of this process that ends with it.
type Process struct {
	name string
	log  string
	// from is where this process's part of the log begins.
	from int64
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// StartProcess starts a program whose output goes to the end of a log file.
func StartProcess(binary, log string, args []string, env ...string) (*Process, error) {
	return startProcess(attributes(), binary, log, args, env...)
}

func startProcess(attributes *syscall.SysProcAttr, binary, log string, args []string, env ...string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	// The child has its own descriptor.
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	p := &Process{from: info.Size(), name: filepath.Base(binary), log: log, done: make(chan struct{}), cmd: exec.Command(binary, args...)}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = attributes
	started := make(chan error, 1)
	spawner <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Running says whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Ended is closed when it has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Log is the path of its log file.
func (p *Process) Log() string { return p.log }

// PID is its process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// CPUSeconds that an ended process used, user and system together.
func (p *Process) CPUSeconds() float64 {
	s := p.cmd.ProcessState
	if s == nil {
		return 0
	}
	return (s.UserTime() + s.SystemTime()).Seconds()
}

// PeakMiB is the largest resident size of a running process up to now, in MiB (VmHWM of
// proc_pid_status(5)). What the system tells of an ended child (ru_maxrss of getrusage(2)) would be
// this process's own peak, where that is larger: a child begins with its parent's figure.
func (p *Process) PeakMiB() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("ask how much memory %s took: %w", p.name, err)
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("ask how much memory %s took: it has no VmHWM", p.name)
}

// Stop asks the process to end, and kills it when it does not within 20 s. A nil or ended process
// is fine.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return fmt.Errorf("%s had ended before it was stopped: %w; its log ends with:\n%s", p.name, cmp.Or(p.err, errExited), tail(p.log))
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(20 * time.Second):
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return fmt.Errorf("%s did not end within 20 s of SIGTERM and was killed", p.name)
}

// Kill ends the process without a warning, as a node failure does.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// WaitFor returns when the log has the text.
func (p *Process) WaitFor(ctx context.Context, text string, timeout time.Duration) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("%s ended: %w", p.name, p.err)
		default:
		}
		content, err := os.ReadFile(p.log)
		return err == nil && bytes.Contains(content[min(p.from, int64(len(content))):], []byte(text)), err
	})
	if err != nil {
		return fmt.Errorf("wait for %q of %s: %w; its log ends with:\n%s", text, p.name, err, tail(p.log))
	}
	return nil
}

func tail(log string) string {
	content, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	if n := len(content) - 3000; n > 0 {
		content = content[n:]
	}
	return string(content)
}
