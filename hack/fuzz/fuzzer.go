// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fuzzer compiles a package's tests once, for all of its targets.
type fuzzer struct {
	out       io.Writer
	root      string
	length    length
	cache     string // where inputs are kept that reached new code, as by `go test -fuzz`
	directory string // of the program
	files     string // what the targets write
}

func newFuzzer(ctx context.Context, out io.Writer, root string, l length) (*fuzzer, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	cache, err := ask(ctx, root, "env", "GOCACHE")
	if err != nil {
		return nil, err
	}
	module, err := ask(ctx, root, "list", "-m")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the tests: %w", err)
	}
	cache = filepath.Join(cache, "fuzz", filepath.FromSlash(module))
	return &fuzzer{out: out, root: root, length: l, cache: cache, directory: dir, files: inMemory(dir)}, nil
}

// ask asks the go command.
func ask(ctx context.Context, root string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = root
	answer, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(string(answer)), nil
}

// inMemory is a folder for the files of the targets: in memory where Linux has a place for that,
// since an fsync of a disk takes as long as a hundred executions.
func inMemory(otherwise string) string {
	if os.Getenv("TMPDIR") != "" {
		return otherwise
	}
	dir, err := os.MkdirTemp("/dev/shm", "fuzz-")
	if err != nil {
		return otherwise
	}
	return dir
}

func (f *fuzzer) close() { _ = errors.Join(os.RemoveAll(f.directory), os.RemoveAll(f.files)) }

// all runs the targets of one package. Tests that cannot be compiled fail each.
func (f *fuzzer) all(ctx context.Context, t targets) []outcome {
	begin := time.Now()
	program := filepath.Join(f.directory, "fuzz.test")
	arguments := []string{"test", "-c", "-vet=off", "-o", program} // `make verify` vets everything
	if f.length.guided {
		arguments = append(arguments, "-fuzz=.") // with -c: compile for it
	}
	compile := exec.CommandContext(ctx, "go", append(arguments, t.importPath())...)
	compile.Dir = f.root
	said, err := compile.CombinedOutput()
	outcomes := make([]outcome, len(t.names))
	if err != nil {
		fmt.Fprintf(f.out, "%s", said)
	} else {
		fmt.Fprintf(f.out, "%s: compiled in %.1f s\n", t.dir, time.Since(begin).Seconds())
	}
	for i, name := range t.names {
		o := outcome{name: t.dir + "." + name}
		if err != nil {
			o.failed, o.says = true, fmt.Sprintf("compile: %v", err)
		} else {
			began := time.Now()
			o = f.rounds(ctx, program, t.dir, name)
			fmt.Fprintf(f.out, "  %-28s %9d executions %6.1f s\n", name, o.executions, time.Since(began).Seconds())
		}
		outcomes[i] = o
	}
	return outcomes
}

// maxRounds is how many times a target gets its time, at most.
const maxRounds = 5

// rounds runs a target again while it has too few executions, as after a time on a busy machine.
// Each round goes on with the inputs that those before it found.
func (f *fuzzer) rounds(ctx context.Context, program, dir, name string) outcome {
	var sum outcome
	for range maxRounds {
		o := outcome{name: dir + "." + name}
		o.ended(f.one(ctx, program, dir, name, &o))
		none := o.executions == 0
		o.executions += sum.executions
		sum = o
		if none || o.failed || o.executions >= f.length.least {
			break
		}
	}
	return sum
}

// one runs a target. The program is a process group of its own with its workers, so that nothing is
// left of a target that is stuck.
func (f *fuzzer) one(ctx context.Context, program, dir, name string, o *outcome) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.length.limit, fmt.Errorf("not done after %s", f.length.limit))
	defer cancel()
	// Without a bound, an input that reaches new code is made shorter for up to a minute.
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.fuzz=^"+name+"$", "-test.fuzztime="+f.length.text,
		"-test.fuzzminimizetime=100x", "-test.fuzzcachedir="+filepath.Join(f.cache, filepath.FromSlash(dir)))
	cmd.Dir = filepath.Join(f.root, filepath.FromSlash(dir))
	cmd.Env = append(cmd.Environ(), "TMPDIR="+f.files)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	read := o.read(output, f.out)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		err = read
	}
	return err
}
