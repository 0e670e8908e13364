// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
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

// player is a process that plays the histories that it is asked for.
type player struct {
	root, program string
	// process is nil until the first history, and after a crash.
	process *exec.Cmd
	cancel  context.CancelFunc
	asks    *json.Encoder
	answers *json.Decoder
	said    *bytes.Buffer
}

// crash is the end of a simulation that is no verdict.
type crash struct{ how, text string }

func (c *crash) Error() string { return "the simulation ends with a " + c.how + ": " + c.text }

// start starts the process.
func (p *player) start(ctx context.Context) error {
	ctx, p.cancel = context.WithCancel(ctx)
	c := exec.CommandContext(ctx, p.program, "--asked", "--shrink=false", "--root="+p.root)
	// It removes its nodes' files when it is told to end.
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, 20*time.Second
	p.said = &bytes.Buffer{}
	c.Stderr = p.said
	in, err := c.StdinPipe()
	if err != nil {
		return fmt.Errorf("run the simulation: %w", err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run the simulation: %w", err)
	}
	p.asks, p.answers = json.NewEncoder(in), json.NewDecoder(out)
	if err := c.Start(); err != nil {
		return fmt.Errorf("run the simulation: %w", err)
	}
	p.process = c
	return nil
}

// close ends the process.
func (p *player) close() error {
	if p.process == nil {
		return nil
	}
	p.cancel()
	err := p.process.Wait()
	p.process = nil
	return err
}

// play makes the history of a seed happen with a mutation; an empty name: with none.
func (p *player) play(ctx context.Context, mutation string, seed uint64) (v verdict, err error) {
	if p.process == nil {
		if err := p.start(ctx); err != nil {
			return v, err
		}
	}
	var hung atomic.Bool
	bark := time.AfterFunc(patience, func() { hung.Store(true); p.cancel() })
	defer bark.Stop()
	err = p.asks.Encode(map[string]any{"mutation": mutation, "seed": seed})
	if err == nil {
		err = p.answers.Decode(&v)
	}
	switch {
	case err == nil:
		return v, nil
	case ctx.Err() != nil:
		return v, ctx.Err()
	}
	return v, p.ended(err, &hung)
}

// ended says how a process has ended that has not answered.
func (p *player) ended(err error, hung *atomic.Bool) error {
	end := p.close()
	_, text, panicked := strings.Cut(p.said.String(), "panic: ")
	switch {
	case hung.Load():
		return &crash{"hang", fmt.Sprintf("a history takes more than %s", patience)}
	case panicked:
		text, _, _ = strings.Cut(text, "\n")
		return &crash{"panic", text}
	}
	return fmt.Errorf("run the simulation: %w: %w: %s", err, end, strings.TrimSpace(p.said.String()))
}
