// SPDX-License-Identifier: Apache-2.0

// Command runtests runs all Go tests against a real API server. It builds the embedded control
// plane when needed, prints one line per package and the output of what failed, and at the end the
// slowest tests and packages and what the run cost. It keeps the results for `make rows` in
// .cache/test.json (or where -results says).
//
// LOAD=N keeps N processors busy beside the tests, as other work on the machine would: what then
// fails leans on time. Then, nothing counts that passed before.
//
// The race detector needs a C compiler on linux; without one it is left out, and that is said.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-project/drover/hack/gotest"
)

const (
	resultsFile = ".cache/test.json"
	conformance = "/test/conformance"
)

// slowest packages, by their tests' time.
var slowest = []string{"/test/e2e", "/test/operators"}

func main() {
	if os.Getenv(busyVariable) != "" {
		beBusy(os.Stdin)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	packages := flag.String("packages", "./...", "packages to test, separated by spaces")
	run := flag.String("run", "", "run only tests that match")
	tags := flag.String("tags", "", "build tags")
	wrapper := flag.String("exec", "", "a command that runs each package's tests in its own way, as go test -exec has it")
	kept := flag.String("results", resultsFile, "keep the results here; empty: nowhere")
	flag.Parse()
	load := os.Getenv("LOAD")
	err := underLoad(load, func() error {
		return runTests(ctx, *packages, arguments(load, *run, *tags, *wrapper), cmp.Or(*kept, os.DevNull))
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

// arguments of `go test`, but for packages. Without load, packages whose tests passed before and
// have not changed are not tested again.
func arguments(load, pattern, tags, wrapper string) []string {
	args := []string{"-timeout", "20m"}
	if load != "" {
		args = append(args, "-count=1")
	}
	if tags != "" {
		args = append(args, "-tags", tags)
	}
	if pattern != "" {
		args = append(args, "-run", pattern)
	}
	if wrapper != "" {
		args = append(args, "-exec", wrapper)
	}
	return args
}

func runTests(ctx context.Context, packages string, args []string, kept string) error {
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return err
	}
	results, err := os.Create(kept)
	if err != nil {
		return err
	}
	defer func() { _ = results.Close() }()

	begin := time.Now()
	chosen, err := choose(ctx, packages)
	if err != nil {
		return err
	}
	fmt.Println("testing (the first run compiles; minutes on 2 cores)")
	tally := newTally()
	err = gotest.Run(ctx, append(args, chosen...), func(stdout io.Reader) error {
		return tally.follow(io.TeeReader(stdout, results), os.Stdout)
	})
	return errors.Join(err, tally.report(os.Stdout, spentSince(begin)))
}

// choose is what to test. Of all packages, the one that `make conformance` runs is left out: it
// needs a fleet of its own, and CI runs both.
func choose(ctx context.Context, packages string) ([]string, error) {
	if packages != "./..." {
		return strings.Fields(packages), nil
	}
	list, err := exec.CommandContext(ctx, "go", "list", packages).Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	all := slices.DeleteFunc(strings.Fields(string(list)), func(name string) bool { return strings.HasSuffix(name, conformance) })
	// Those that wait for clusters more than they compute begin first, so that the others are done
	// meanwhile.
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(turn(a), turn(b)) })
	return all, nil
}

// turn is when a package's tests begin, lowest first.
func turn(name string) int {
	if i := slices.IndexFunc(slowest, func(s string) bool { return strings.HasSuffix(name, s) }); i >= 0 {
		return i
	}
	return len(slowest)
}
