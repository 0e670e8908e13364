// SPDX-License-Identifier: Apache-2.0

package kcall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// ErrLeftBehind says that the child did not answer before its deadline; it is still running.
var ErrLeftBehind = errors.New("the child process did not answer in time and was left behind")

// ErrDied says that the child ended without an answer, most likely killed by an oops.
var ErrDied = errors.New("the child process died in the call")

// Caller runs children.
type Caller struct {
	// Command is the program and its first arguments, for example {"/proc/self/exe", "kcall"}.
	Command []string
	// Deadline of one call.
	Deadline time.Duration
	// Returned is called when a child that was left behind ends after all. May be nil.
	Returned func(module string)

	mu   sync.Mutex
	left map[string]bool // modules with a child left behind
}

// Call makes one call on a module in a child and waits for its answer, at most until the deadline. After ErrLeftBehind
// the module gets no other call as long as that child lives.
//
// The child is not killed: a task in the kernel cannot be, and one that could be would be cut off in the middle.
func (c *Caller) Call(module string, r Request, file *os.File) (Answer, error) {
	if c.isLeft(module) {
		return Answer{}, ErrLeftBehind
	}
	request, err := json.Marshal(r)
	if err != nil {
		return Answer{}, fmt.Errorf("kcall: encode the request: %w", err)
	}
	out := &limited{}
	child := exec.Command(c.Command[0], c.Command[1:]...) //nolint:gosec // the agent's own binary
	child.Stdin, child.Stdout, child.Stderr = bytes.NewReader(request), out, os.Stderr
	if file != nil {
		child.ExtraFiles = []*os.File{file} // descriptor 3
	}
	if err := child.Start(); err != nil {
		return Answer{}, fmt.Errorf("kcall: start the child: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	timer := time.NewTimer(c.Deadline)
	defer timer.Stop()
	select {
	case err := <-ended:
		return answer(out.buffer.Bytes(), err)
	case <-timer.C:
		c.leave(module, ended)
		return Answer{}, ErrLeftBehind
	}
}

func (c *Caller) isLeft(module string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left[module]
}

func (c *Caller) leave(module string, ended <-chan error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil {
		c.left = map[string]bool{}
	}
	c.left[module] = true
	go func() {
		<-ended //nolint:errcheck // nobody waits for its answer any more
		c.mu.Lock()
		delete(c.left, module)
		c.mu.Unlock()
		if c.Returned != nil {
			c.Returned(module)
		}
	}()
}

// answer reads what the child said.
func answer(out []byte, ended error) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(out, &a); err != nil {
		if ended != nil {
			return Answer{}, fmt.Errorf("kcall: %w: %w", ErrDied, ended)
		}
		return Answer{}, fmt.Errorf("kcall: read the answer: %w", err)
	}
	if a.Message != "" {
		return Answer{}, fmt.Errorf("kcall: %s", a.Message)
	}
	return a, nil
}

// limited keeps a bounded amount of output.
type limited struct{ buffer bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.buffer.Len()+len(p) > maxMessage {
		return 0, io.ErrShortWrite
	}
	n, _ := l.buffer.Write(p) // never fails
	return n, nil
}
