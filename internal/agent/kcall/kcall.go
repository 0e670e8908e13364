// SPDX-License-Identifier: Apache-2.0

// Package kcall makes one system call that inserts or removes a kernel module, in a process of its
// own: an oops kills that process and not the agent, and a call that hangs can be left behind.
//
// The agent runs drover-kcall, or itself as `drover-agent kcall`, with a Request as JSON on
// standard input and the module's file as descriptor 3. The Answer is JSON on standard output.
package kcall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxMessage bounds a request or an answer, in bytes.
const maxMessage = 1 << 20

// Request is one call.
type Request struct {
	Load   *Load  `json:"load,omitempty"`   // the module to insert
	Unload string `json:"unload,omitempty"` // the name of the module to remove; exactly one of the two is set
}

// Load is finit_module(2) on the inherited file, or on a copy in memory.
type Load struct {
	Name   string   `json:"name"`             // for messages; the kernel takes it from the file
	Params []string `json:"params,omitempty"` // key=value, in order
	// KernelDecompresses is the content of /sys/module/compression ("gzip", "xz" or "zstd"); empty on
	// kernels that decompress nothing.
	KernelDecompresses string `json:"kernelDecompresses,omitempty"`
	// ByLabel says that the kernel decides by the file's SELinux label: it is given a copy in memory.
	ByLabel bool `json:"byLabel,omitempty"`
}

// Answer is what became of it.
type Answer struct {
	Errno   string `json:"errno,omitempty"`   // the error's symbolic name; empty: the call succeeded
	Message string `json:"message,omitempty"` // set when the call could not even be made
}

// Run is the child: it reads a request, makes the call and writes the answer.
func Run(in io.Reader, out io.Writer) error {
	var r Request
	if err := json.NewDecoder(io.LimitReader(in, maxMessage)).Decode(&r); err != nil {
		return fmt.Errorf("kcall: read the request: %w", err)
	}
	var answer Answer
	switch {
	case r.Load != nil && r.Unload == "":
		answer = load(*r.Load)
	case r.Load == nil && r.Unload != "":
		answer = unload(r.Unload)
	default:
		answer.Message = "exactly one of load and unload must be set"
	}
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		return fmt.Errorf("kcall: write the answer: %w", err)
	}
	return nil
}

// isSpace is the kernel's isspace, which goes by bytes and Latin-1: 0xa0 is a blank there, and the
// end of some characters of UTF-8, such as that of an a with a grave accent.
func isSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' || b == 0xa0 }

// commandLine joins parameters as the kernel parses them: values with blanks in double quotes.
func commandLine(params []string) string {
	quoted := make([]string, len(params))
	for i, p := range params {
		name, value, ok := strings.Cut(p, "=")
		if ok && slices.ContainsFunc([]byte(value), isSpace) && !strings.HasPrefix(value, `"`) {
			p = name + `="` + value + `"`
		}
		quoted[i] = p
	}
	return strings.Join(quoted, " ")
}

// ErrDied says that the child ended without an answer. Most likely an oops killed it.
var ErrDied = errors.New("the child process died in the call")

// ErrNotStarted says that there was no child that could make the call, for want of memory for
// example.
var ErrNotStarted = errors.New("no child process could make the call")

// Caller makes kernel calls, each in a child.
type Caller struct {
	Command []string // the program and its first arguments, for example {"/proc/self/exe", "kcall"}
	Children
}

// Call makes one call on a module in a child and waits for its answer. After ErrLeftBehind, the
// module gets no other call as long as that child lives.
func (c *Caller) Call(module string, r Request, file *os.File) (Answer, error) {
	if c.Left(module) {
		return Answer{}, ErrLeftBehind
	}
	request, err := json.Marshal(r)
	if err != nil {
		return Answer{}, fmt.Errorf("kcall: encode the request: %w", err)
	}
	out := &Limited{Most: maxMessage}
	child := exec.Command(c.Command[0], c.Command[1:]...) //nolint:gosec // the agent's own binary
	child.Stdin, child.Stdout, child.Stderr = bytes.NewReader(request), out, os.Stderr
	if file != nil {
		child.ExtraFiles = []*os.File{file} // descriptor 3
	}
	if err := child.Start(); err != nil {
		return Answer{}, fmt.Errorf("kcall: %w: %w", ErrNotStarted, err)
	}
	ended := c.Wait(child, module)
	if errors.Is(ended, ErrLeftBehind) {
		return Answer{}, ended
	}
	return answer(out.Kept, ended)
}

// answer reads what the child said.
func answer(out []byte, ended error) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(out, &a); err != nil {
		// One that ends by itself lacked something: memory, or threads. An oops leaves no exit code.
		if exit, ok := errors.AsType[*exec.ExitError](ended); ok && exit.ExitCode() >= 0 {
			return Answer{}, fmt.Errorf("kcall: %w: %w", ErrNotStarted, ended)
		}
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

// Limited keeps the first Most bytes of what is written to it.
type Limited struct {
	Most int
	Kept []byte
}

// Write never fails.
func (l *Limited) Write(p []byte) (int, error) {
	l.Kept = append(l.Kept, p[:min(len(p), l.Most-len(l.Kept))]...)
	return len(p), nil
}

// ErrLeftBehind says that a child did not end before its deadline; it is still running.
var ErrLeftBehind = errors.New("the child process did not end in time and was left behind")

// Children waits for processes that make kernel calls, and leaves behind those that hang. It kills
// none: a task in the kernel cannot be killed, and any other would be cut off in the middle.
type Children struct {
	Deadline time.Duration // of one child
	Returned func()        // called when a child that was left behind ends after all; may be nil

	mu   sync.Mutex
	left map[string]bool // keys of children left behind
}

// Left tells whether a child with this key was left behind and is still running.
func (c *Children) Left(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left[key]
}

// Running tells whether any child that was left behind is still running.
func (c *Children) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.left) > 0
}

// Wait returns how a child ended that was started, or ErrLeftBehind after the deadline.
func (c *Children) Wait(child *exec.Cmd, key string) error {
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	timer := time.NewTimer(c.Deadline)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil {
		c.left = map[string]bool{}
	}
	c.left[key] = true
	go func() {
		<-ended //nolint:errcheck // nobody waits for its answer any more
		c.mu.Lock()
		delete(c.left, key)
		c.mu.Unlock()
		if c.Returned != nil {
			c.Returned()
		}
	}()
	return ErrLeftBehind
}
