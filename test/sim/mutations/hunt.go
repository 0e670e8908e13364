// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	// programs have mutations: program has all that are in functions.
	program  string
	programs map[string]string
	// clean tells, by seed, whether a history breaks no promise without a mutation.
	mu    sync.Mutex
	clean map[uint64]bool
}

// newHunt compiles programs that have the mutations.
func newHunt(ctx context.Context, root string, all []mutation) (*hunt, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	dir, err := os.MkdirTemp("", "drover-mutations-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for what is compiled: %w", err)
	}
	h := &hunt{root: abs, dir: dir, programs: map[string]string{}, clean: map[uint64]bool{}}
	if err := h.compile(ctx, all); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *hunt) close() { _ = os.RemoveAll(h.dir) }

// compile makes one program of all mutations that are in functions, and one for each other.
func (h *hunt) compile(ctx context.Context, all []mutation) error {
	product, err := read(h.root, all)
	if err != nil {
		return err
	}
	woven, left, err := weave(product, all)
	if err != nil {
		return err
	}
	if h.program, err = h.build(ctx, "all", woven); err != nil {
		return err
	}
	for i := range left {
		m := &left[i]
		mutated := sources{m.File: bytes.Replace(product[m.File], []byte(m.Old), []byte(m.New), 1)}
		if h.programs[m.Name], err = h.build(ctx, m.Name, mutated); err != nil {
			return err
		}
	}
	return nil
}

// read reads the files of mutations. Each has what is mutated once.
func read(root string, all []mutation) (sources, error) {
	product := sources{}
	for i := range all {
		m := &all[i]
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		if n := bytes.Count(text, []byte(m.Old)); n != 1 {
			return nil, fmt.Errorf("%s: %s has %d times what is to be mutated", m.Name, m.File, n)
		}
		product[m.File] = text
	}
	return product, nil
}

// build compiles the simulation with other files of the product, with the flags of this process's
// environment.
func (h *hunt) build(ctx context.Context, name string, files sources) (program string, err error) {
	replace := map[string]string{}
	for file, text := range files {
		other := filepath.Join(h.dir, fmt.Sprintf("%s-%d.go", name, len(replace)))
		if err := os.WriteFile(other, text, 0o600); err != nil {
			return "", fmt.Errorf("write the mutations: %w", err)
		}
		replace[filepath.Join(h.root, filepath.FromSlash(file))] = other
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	overlay := filepath.Join(h.dir, name+".json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	program = filepath.Join(h.dir, name)
	c := exec.CommandContext(ctx, "go", "build", "-o", program, "-overlay="+overlay, ".")
	c.Dir = filepath.Join(h.root, "test", "sim")
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: go build: %w: %s", name, err, strings.TrimSpace(string(text)))
	}
	return program, nil
}

// find returns the first history that breaks a promise because of the mutation; nil: none does.
func (h *hunt) find(ctx context.Context, m *mutation) (*verdict, error) {
	var found *verdict
	var failed error
	last := uint64(0)
	err := h.play(ctx, m.Name, 1, m.Within, func(v verdict) bool {
		last = v.Seed
		if v.Promise != "" {
			clean, err := h.without(ctx, v.Seed)
			if failed = err; clean {
				found = &v
			}
		}
		return found != nil || failed != nil
	})
	var c *crash
	if m.Crashes != "" && errors.As(err, &c) {
		return &verdict{Seed: last + 1, Promise: "(" + c.how + ")"}, nil
	}
	return found, cmp.Or(failed, err)
}

// without tells whether a history breaks no promise without a mutation.
func (h *hunt) without(ctx context.Context, seed uint64) (clean bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if clean, known := h.clean[seed]; known {
		return clean, nil
	}
	err = h.play(ctx, "", seed, 1, func(v verdict) bool {
		h.clean[seed] = v.Promise == ""
		return false
	})
	return h.clean[seed], err
}

// crash is the end of a simulation that is no verdict.
type crash struct{ how, text string }

func (c *crash) Error() string { return "the simulation ends with a " + c.how + ": " + c.text }

// play runs a simulation with a mutation, or none, on n seeds, until enough says that it has seen
// enough.
func (h *hunt) play(ctx context.Context, name string, seed uint64, n int, enough func(verdict) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := exec.CommandContext(ctx, cmp.Or(h.programs[name], h.program), "--worker=0", "--workers=1", "--shrink=false",
		fmt.Sprint("--seed=", seed), fmt.Sprint("--histories=", n), "--root="+h.root)
	c.Env = append(os.Environ(), mutationVariable+"="+name)
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
