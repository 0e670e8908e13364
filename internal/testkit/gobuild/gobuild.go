// SPDX-License-Identifier: Apache-2.0

// Package gobuild runs `go build` and tells how far it is. It needs nothing but a small part of the
// standard library: `make demo` compiles it before it can say anything.
package gobuild

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// patience is how long a build says nothing.
const patience = 5 * time.Second

// Quick are the flags of programs that are compiled to be used once or in tests: neither debug
// information nor, outside of the standard library, inlined calls. That takes a third off the
// compiler's time. The standard library is compiled as ever: allocation, maps, JSON and
// cryptography are where an API server spends its time. The Makefile has them as QUICK: what a
// target and what a test compiles is the same then, in Go's cache.
func Quick() []string {
	return []string{"-trimpath", "-gcflags=all=-l -dwarf=false", "-gcflags=std="}
}

// Build is something for the go command to do.
type Build struct {
	// Name is what is built, for the reader.
	Name string
	// Dir is the folder of a Go module, Modfile its file of modules; empty is go.mod.
	Dir, Modfile string
	// Flags of `go build`.
	Flags []string
	// Env are variables beside those of this process.
	Env []string
	// Output is the file to write, or a folder for several programs; it ends in a slash then.
	Output string
	// Packages are what to build.
	Packages []string
	// Say is told, with a line, how far a build is that takes longer than five seconds. Nil: nothing.
	Say func(format string, args ...any)

	patience time.Duration
}

// Run builds. The error holds what the compiler said.
func (b Build) Run(ctx context.Context) error {
	args := append([]string{"build", "-v"}, b.Flags...)
	return b.do(ctx, "building", append(append(args, "-o", b.Output), b.Packages...))
}

// Fetch loads the modules that the packages need and this machine does not have.
func (b Build) Fetch(ctx context.Context) error {
	args := append([]string{"list", "-deps", "-f", ""}, b.Flags...)
	return b.do(ctx, "fetching modules of", append(args, b.Packages...))
}

// do runs one go command, reads what it says of its work, and tells of it.
func (b Build) do(ctx context.Context, verb string, args []string) error {
	cmd := b.command(ctx, args)
	output, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	lines := make(chan string)
	go read(output, lines)
	ended := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, b.Name, err)
	}
	go func() {
		err := cmd.Wait()
		_ = writer.Close() // a pipe in memory has no way to fail
		ended <- err
	}()
	state := b.follow(ctx, verb, lines)
	if err := <-ended; err != nil {
		return fmt.Errorf("%s %s: %w\n%s", verb, b.Name, err, strings.Join(state.other, "\n"))
	}
	return nil
}

func (b Build) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.Dir
	cmd.Env = append(os.Environ(), b.Env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// read sends each line, whatever its length.
func read(from io.Reader, lines chan<- string) {
	defer close(lines)
	for reader := bufio.NewReader(from); ; {
		line, err := reader.ReadString('\n')
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			lines <- line
		}
		if err != nil {
			return
		}
	}
}

// follow takes the lines until they end, and says how far it is whenever patience has passed.
func (b Build) follow(ctx context.Context, verb string, lines <-chan string) *progress {
	interval := b.patience
	if interval == 0 {
		interval = patience
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	state, begin, counts := &progress{modules: b.modules()}, time.Now(), make(chan int, 1)
	for counting := false; ; {
		select {
		case line, open := <-lines:
			if !open {
				return state
			}
			state.take(line)
		case state.packages = <-counts:
		case <-ticker.C:
			if b.Say == nil {
				continue
			}
			// Only a build that takes long is worth the second that this takes.
			if !counting && state.compiled > 0 {
				counting = true
				go func() { counts <- b.count(ctx) }()
			}
			b.Say("%s %s for %.0f s: %s", verb, b.Name, time.Since(begin).Seconds(), state)
		}
	}
}

// count returns how many packages the build consists of; 0: unknown.
func (b Build) count(ctx context.Context) int {
	args := append([]string{"list", "-deps"}, b.Flags...)
	out, err := b.command(ctx, append(args, b.Packages...)).Output()
	if err != nil {
		return 0 // the build itself says why
	}
	return strings.Count(string(out), "\n")
}

// modules returns how many modules the build may need at most; 0: unknown.
func (b Build) modules() int {
	file := b.Modfile
	if file == "" {
		file = "go.mod"
	}
	content, err := os.ReadFile(b.Dir + "/" + file)
	if err != nil {
		return 0 // the build itself says why
	}
	n, inside := 0, false
	for line := range strings.Lines(string(content)) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "require ("):
			inside = true
		case line == ")":
			inside = false
		case inside && line != "", strings.HasPrefix(line, "require "):
			n++
		}
	}
	return n
}
