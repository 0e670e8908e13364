// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

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

// hunter is one of those that look for mutations at the same time.
type hunter struct {
	*hunt
	player player
}

func (h *hunt) hunter() *hunter { return &hunter{h, player{root: h.root, program: h.program}} }

// find returns the first history that breaks a promise because of the mutation; nil: none does.
func (h *hunter) find(ctx context.Context, m *mutation) (*verdict, error) {
	p := &h.player
	if program := h.programs[m.Name]; program != "" {
		p = &player{root: h.root, program: program}
		defer p.close() //nolint:errcheck // it is told to end
	}
	for seed := range uint64(m.Within) { //nolint:gosec // not negative
		v, err := p.play(ctx, m.Name, seed+1)
		var c *crash
		switch {
		case m.Crashes != "" && errors.As(err, &c):
			return &verdict{Seed: seed + 1, Promise: "(" + c.how + ")"}, nil
		case err != nil:
			return nil, err
		case v.Promise == "":
			continue
		}
		if clean, err := h.without(ctx, v.Seed); clean || err != nil {
			return &v, err
		}
	}
	return nil, nil
}

// without tells whether a history breaks no promise without a mutation.
func (h *hunter) without(ctx context.Context, seed uint64) (clean bool, err error) {
	h.mu.Lock()
	clean, known := h.clean[seed]
	h.mu.Unlock()
	if known {
		return clean, nil
	}
	v, err := h.player.play(ctx, "", seed)
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clean[seed] = v.Promise == ""
	return h.clean[seed], nil
}
