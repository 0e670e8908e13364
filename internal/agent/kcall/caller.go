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
)

// ErrDied says that the child ended without an answer. Most likely an oops killed it.
var ErrDied = errors.New("the child process died in the call")

// Caller makes kernel calls, each in a child.
type Caller struct {
	// Command is the program and its first arguments, for example {"/proc/self/exe", "kcall"}.
	Command []string
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
	out := &limited{}
	child := exec.Command(c.Command[0], c.Command[1:]...) //nolint:gosec // the agent's own binary
	child.Stdin, child.Stdout, child.Stderr = bytes.NewReader(request), out, os.Stderr
	if file != nil {
		child.ExtraFiles = []*os.File{file} // descriptor 3
	}
	if err := child.Start(); err != nil {
		return Answer{}, fmt.Errorf("kcall: start the child: %w", err)
	}
	ended := c.Wait(child, module)
	if errors.Is(ended, ErrLeftBehind) {
		return Answer{}, ended
	}
	return answer(out.buffer.Bytes(), ended)
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
