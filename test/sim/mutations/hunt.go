// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// patience is how long a history may take, on a busy machine, and the API server before the first.
const patience = 3 * time.Minute

// verdict is what a history comes to.
type verdict struct {
	Seed    uint64 `json:"seed"`
	Promise string `json:"promise"` // empty: none is broken
}

// hunt looks for mutations.
type hunt struct {
	root, dir string
	// clean tells, by seed from 1 on, whether a history breaks no promise without a mutation.
	clean []bool
}

func newHunt(root string) (*hunt, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	dir, err := os.MkdirTemp("", "drover-mutations-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for what is compiled: %w", err)
	}
	return &hunt{root: abs, dir: dir}, nil
}

func (h *hunt) close() { _ = os.RemoveAll(h.dir) }

// learn plays the first histories without a mutation.
func (h *hunt) learn(ctx context.Context, n int) error {
	program, err := h.build(ctx)
	if err != nil {
		return err
	}
	defer os.Remove(program) //nolint:errcheck // its folder goes anyway
	return h.play(ctx, program, n, func(v verdict) bool {
		h.clean = append(h.clean, v.Promise == "")
		return false
	})
}

// broken counts the histories that break a promise without a mutation.
func (h *hunt) broken() (n int) {
	for _, clean := range h.clean {
		if !clean {
			n++
		}
	}
	return n
}

// find returns the first history that breaks a promise because of the mutation; nil: none does.
func (h *hunt) find(ctx context.Context, m *mutation) (*verdict, error) {
	overlay, err := h.mutate(m)
	if err != nil {
		return nil, err
	}
	program, err := h.build(ctx, "-overlay="+overlay)
	if err != nil {
		return nil, fmt.Errorf("it does not compile: %w", err)
	}
	defer os.Remove(program) //nolint:errcheck // its folder goes anyway
	var found *verdict
	last := uint64(0)
	err = h.play(ctx, program, m.Within, func(v verdict) bool {
		last = v.Seed
		if v.Promise != "" && h.clean[v.Seed-1] {
			found = &v
		}
		return found != nil
	})
	var c *crash
	if m.Crashes != "" && errors.As(err, &c) {
		return &verdict{Seed: last + 1, Promise: "(" + c.how + ")"}, nil
	}
	return found, err
}

// mutate writes the file with the mutation, and what has the compiler read it.
func (h *hunt) mutate(m *mutation) (overlay string, err error) {
	file := filepath.Join(h.root, filepath.FromSlash(m.File))
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read what is to be mutated: %w", err)
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		return "", fmt.Errorf("%s has %d times what is to be mutated", m.File, n)
	}
	other := filepath.Join(h.dir, "mutated.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: other}})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	overlay = filepath.Join(h.dir, "overlay.json")
	err = errors.Join(os.WriteFile(other, []byte(strings.Replace(string(text), m.Old, m.New, 1)), 0o600), os.WriteFile(overlay, list, 0o600))
	if err != nil {
		return "", fmt.Errorf("write the mutation: %w", err)
	}
	return overlay, nil
}

// build compiles the simulation, with the flags of this process's environment.
func (h *hunt) build(ctx context.Context, flags ...string) (program string, err error) {
	program = filepath.Join(h.dir, "sim")
	c := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", program}, flags...), ".")...)
	c.Dir = filepath.Join(h.root, "test", "sim")
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return program, nil
}

// crash is the end of a simulation that is no verdict.
type crash struct{ how, text string }

func (c *crash) Error() string { return "the simulation ends with a " + c.how + ": " + c.text }

// play runs a simulation on the seeds from 1 to n, until enough says that it has seen enough.
func (h *hunt) play(ctx context.Context, program string, n int, enough func(verdict) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := exec.CommandContext(ctx, program, "--worker=0", "--workers=1", "--shrink=false", "--seed=1", fmt.Sprint("--histories=", n),
		"--root="+h.root)
	// It removes its nodes' files when it is told to end.
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, 20*time.Second
	var said bytes.Buffer
	c.Stderr = &said
	lines, err := c.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run the simulation: %w", err)
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("run the simulation: %w", err)
	}
	seen, done, hung := follow(lines, enough, cancel)
	err = c.Wait()
	switch {
	case done:
		return nil
	case hung:
		return &crash{"hang", fmt.Sprintf("a history takes more than %s", patience)}
	case err != nil && strings.Contains(said.String(), "panic: "):
		_, text, _ := strings.Cut(said.String(), "panic: ")
		text, _, _ = strings.Cut(text, "\n")
		return &crash{"panic", text}
	case err != nil:
		return fmt.Errorf("run the simulation: %w: %s", err, strings.TrimSpace(said.String()))
	case seen < n:
		return fmt.Errorf("run the simulation: it has told of %d of %d histories", seen, n)
	}
	return nil
}

// follow reads verdicts, and ends the simulation when it has seen enough or hears nothing for long.
func follow(lines io.Reader, enough func(verdict) bool, end func()) (seen int, done, hung bool) {
	var silent atomic.Bool
	bark := time.AfterFunc(patience, func() { silent.Store(true); end() })
	defer bark.Stop()
	decoder := json.NewDecoder(lines)
	for {
		var v verdict
		if decoder.Decode(&v) != nil { // the end; how it ended, the process says
			return seen, false, silent.Load()
		}
		bark.Reset(patience)
		seen++
		if enough(v) {
			end()
			return seen, true, false
		}
	}
}
