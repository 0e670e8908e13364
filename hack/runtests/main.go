// SPDX-License-Identifier: Apache-2.0

// Command runtests runs all Go tests against a real API server. It builds the embedded control
// plane when needed, prints one line per package and the output of what failed, and at the end the
// slowest tests and packages and what the run cost. It keeps the results for `make rows` in
// .cache/test.json (or where -results says).
//
// LOAD=N keeps N processors busy beside the tests, as other work on the machine would: what then
// fails leans on time. Then, nothing counts that passed before.
//
// What runs beside itself is tested with the race detector, the rest without: it would find nothing
// there, and all that is linked would be compiled twice. It needs a C compiler on linux; without
// one it is left out, and that is said.
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
	everything  = "./..."
)

// elsewhere are packages that targets of their own run: conformance needs a fleet, attacks need
// kmod. CI runs those targets beside `make test`.
var elsewhere = []string{"test/conformance", "test/attacks"}

// slowest packages, by their tests' time.
var slowest = []string{"/test/e2e", "/test/operators"}

func main() {
	if os.Getenv(busyVariable) != "" {
		beBusy(os.Stdin)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	packages := flag.String("packages", everything, "packages to test, separated by spaces")
	run := flag.String("run", "", "run only tests that match")
	tags := flag.String("tags", "", "build tags")
	wrapper := flag.String("exec", "", "a command that runs each package's tests in its own way, as go test -exec has it")
	only := flag.Bool("concurrent", false, "test only what runs beside itself, with the race detector")
	kept := flag.String("results", resultsFile, "keep the results here; empty: nowhere")
	flag.Parse()
	load := os.Getenv("LOAD")
	err := underLoad(load, func() error {
		chosen := selection{packages: *packages, tags: *tags, concurrent: *only}
		return runTests(ctx, chosen, arguments(load, *run, *tags, *wrapper), cmp.Or(*kept, os.DevNull))
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

func runTests(ctx context.Context, s selection, args []string, kept string) error {
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return err
	}
	results, err := os.Create(kept)
	if err != nil {
		return err
	}
	defer func() { _ = results.Close() }()

	begin := time.Now()
	race, plain, err := choose(ctx, s)
	if err != nil {
		return err
	}
	fmt.Println("testing (the first run compiles; minutes on 2 cores)")
	if len(race) > 0 && !gotest.RaceDetectorWorks() {
		fmt.Println("no C compiler found: testing without the race detector")
		race, plain = nil, append(race, plain...)
	}
	tally := newTally()
	test := func(detector gotest.Detector, chosen []string) error {
		if len(chosen) == 0 {
			return nil
		}
		return gotest.Run(ctx, detector, append(slices.Clone(args), chosen...), func(stdout io.Reader) error {
			return tally.follow(io.TeeReader(stdout, results), os.Stdout)
		})
	}
	err = errors.Join(test(gotest.Race, race), test(gotest.Plain, plain))
	return errors.Join(err, tally.report(os.Stdout, spentSince(begin)))
}

// selection of packages to test.
type selection struct {
	// packages as go names them, and build tags.
	packages, tags string
	// concurrent leaves out what does not run beside itself.
	concurrent bool
}

// choose is what to test: what is concurrent with the race detector, and the rest without. Of all
// packages, those that are tested elsewhere are left out.
func choose(ctx context.Context, s selection) (race, plain []string, err error) {
	args := append([]string{"list", "-e", "-tags=" + s.tags, "-f", "{{.ImportPath}}\t{{.Dir}}"}, strings.Fields(s.packages)...)
	list := exec.CommandContext(ctx, "go", args...)
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the packages: %w", err)
	}
	for line := range strings.Lines(string(output)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if s.packages == everything && slices.Contains(elsewhere, strings.TrimPrefix(name, module)) {
			continue
		}
		found, err := concurrent(dir, strings.TrimPrefix(name, module))
		switch {
		case err != nil:
			return nil, nil, err
		case found:
			race = append(race, name)
		case !s.concurrent:
			plain = append(plain, name)
		}
	}
	// Those that wait for clusters more than they compute begin first, so that the others are done
	// meanwhile.
	sooner := func(a, b string) int { return cmp.Compare(turn(a), turn(b)) }
	slices.SortStableFunc(race, sooner)
	slices.SortStableFunc(plain, sooner)
	return race, plain, nil
}

// turn is when a package's tests begin, lowest first.
func turn(name string) int {
	if i := slices.IndexFunc(slowest, func(s string) bool { return strings.HasSuffix(name, s) }); i >= 0 {
		return i
	}
	return len(slowest)
}
