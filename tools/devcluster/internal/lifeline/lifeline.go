// SPDX-License-Identifier: Apache-2.0

// Package lifeline ties the life of a child process to its parent's: the child
// holds the read end of a pipe whose write end only the parent has, and exits
// when the pipe ends. It works however the parent dies, SIGKILL included, and
// on every Unix.
package lifeline

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// fdVariable names, in the child's environment, the descriptor to watch.
const fdVariable = "DEVCLUSTER_LIFELINE_FD"

// ExitCode is the status of a process that ended because its parent was gone.
const ExitCode = 87

// Rope is the parent's end. Closing it, or dying, ends the children tied to it.
type Rope struct {
	read, write *os.File
}

// New makes a rope. Both ends are close-on-exec, so that no child holds the
// write end by accident.
func New() (*Rope, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the lifeline pipe: %w", err)
	}
	return &Rope{read: read, write: write}, nil
}

// Tie makes the not yet started cmd follow the rope. The program must call
// Follow first thing.
func (r *Rope) Tie(cmd *exec.Cmd) {
	cmd.ExtraFiles = append(cmd.ExtraFiles, r.read)
	fd := 2 + len(cmd.ExtraFiles)
	cmd.Env = append(cmd.Environ(), fdVariable+"="+strconv.Itoa(fd))
}

// Close ends every process tied to the rope.
func (r *Rope) Close() error {
	if err := r.write.Close(); err != nil {
		return fmt.Errorf("close the lifeline: %w", err)
	}
	if err := r.read.Close(); err != nil {
		return fmt.Errorf("close the lifeline: %w", err)
	}
	return nil
}

// Follow makes this process exit with ExitCode when its parent's rope ends. It
// does nothing in a process that was not tied.
func Follow() error {
	text, tied := os.LookupEnv(fdVariable)
	if !tied {
		return nil
	}
	// The process's own children must not take the descriptor for theirs.
	if err := os.Unsetenv(fdVariable); err != nil {
		return fmt.Errorf("unset %s: %w", fdVariable, err)
	}
	fd, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%s: %w", fdVariable, err)
	}
	syscall.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "lifeline")
	if pipe == nil {
		return fmt.Errorf("%s: descriptor %d is not open", fdVariable, fd)
	}
	go ExitOnEOF(pipe)
	return nil
}

// ExitOnEOF reads r until it ends and then exits the process at once.
func ExitOnEOF(r io.Reader) {
	// Whatever ends the reading, an error too, means that the parent is out of
	// reach.
	_, _ = io.Copy(io.Discard, r)
	os.Exit(ExitCode)
}
