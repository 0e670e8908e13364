// SPDX-License-Identifier: Apache-2.0

// Package gotest runs `go test -json` with what our tests need: the embedded control plane and, if
// asked for, the race detector.
package gotest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// Event is one line of `go test -json`.
type Event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// Detector is whether tests run under the race detector.
type Detector bool

const (
	// Plain is without it. It sees nothing of the programs that a test starts, and nothing where only
	// one goroutine runs.
	Plain Detector = false
	// Race is with it. It needs a C compiler, but on macOS (see RaceDetectorWorks).
	Race Detector = true
)

// Run runs `go test -json` with more arguments and hands over its output. A test that fails is an
// error too.
func Run(ctx context.Context, detector Detector, arguments []string, follow func(io.Reader) error) error {
	assets, err := devcluster.Assets(ctx)
	if err != nil {
		return fmt.Errorf("build the control plane for the API tests: %w", err)
	}
	// `make verify` vets everything. Debuggers' tables are half of what the linker writes; stack
	// traces need none.
	args := []string{"test", "-json", "-vet=off", "-ldflags=-s -w", "-p", strconv.Itoa(packagesAtOnce())}
	env := append(os.Environ(), "KUBEBUILDER_ASSETS="+assets)
	if detector == Race {
		args, env = append(args, "-race"), append(env, "CGO_ENABLED=1")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, arguments...)...)
	cmd.Env = env
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return errors.Join(follow(stdout), cmd.Wait())
}

// packagesAtOnce is how many packages are compiled and tested beside one another: one more than
// Go's default, since tests wait for clusters: 28 % of the processors' time was idle (ADR 0041).
func packagesAtOnce() int { return runtime.GOMAXPROCS(0) + 1 }

// RaceDetectorWorks is true where Go can link it.
func RaceDetectorWorks() bool {
	if runtime.GOOS == "darwin" {
		return true
	}
	for _, cc := range []string{"gcc", "clang", "cc"} {
		if _, err := exec.LookPath(cc); err == nil {
			return true
		}
	}
	return false
}

// Each calls do for every event, and other for lines that are none.
func Each(in io.Reader, do func(*Event), other func(string)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			other(lines.Text())
			continue
		}
		do(&e)
	}
	return lines.Err()
}
