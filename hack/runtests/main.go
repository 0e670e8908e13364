// SPDX-License-Identifier: Apache-2.0

// Command runtests runs all Go tests against a real API server. It builds the embedded control
// plane when needed, prints one line per package and the output of what failed, and keeps the
// results for `make rows` in .cache/test.json (or where -results says).
//
// LOAD=N keeps N processors busy beside the tests, as other work on the machine would: what then
// fails leans on time. Then, nothing counts that passed before.
//
// The race detector needs a C compiler on linux; without one it is left out, and that is said.
package main

import (
	"cmp"
	"context"
	"encoding/json"
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

	chosen, err := choose(ctx, packages)
	if err != nil {
		return err
	}
	fmt.Println("testing (the first run compiles; minutes on 2 cores)")
	var tally counts
	err = gotest.Run(ctx, append(args, chosen...), func(stdout io.Reader) error {
		return tally.follow(io.TeeReader(stdout, results), os.Stdout)
	})
	return errors.Join(err, tally.report(os.Stdout))
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

// counts of top-level tests and subtests.
type counts struct{ passed, failed, skipped, packages int }

// follow prints packages as they end, and the output of every failed test or build.
func (c *counts) follow(in io.Reader, out io.Writer) error {
	output := map[string][]string{}
	return gotest.Each(in, func(e *gotest.Event) {
		key := e.Package + e.ImportPath + " " + e.Test
		switch {
		case e.Action == "output" || e.Action == "build-output":
			output[key] = append(output[key], e.Output)
		case e.Action == "build-fail":
			show(out, output[key])
		case e.Test != "":
			c.test(e.Action)
			if e.Action == "fail" {
				fmt.Fprintf(out, "--- FAIL: %s %s (%.2fs)\n", e.Package, e.Test, e.Elapsed)
				show(out, output[key])
			}
			if e.Action == "pass" || e.Action == "skip" {
				delete(output, key)
			}
		case e.Action == "pass":
			c.packages++
			fmt.Fprintf(out, "ok  \t%s\t%.3fs\n", e.Package, e.Elapsed)
		case e.Action == "fail":
			c.packages++
			show(out, output[key])
			fmt.Fprintf(out, "FAIL\t%s\t%.3fs\n", e.Package, e.Elapsed)
		}
	}, func(line string) { fmt.Fprintln(out, line) })
}

func show(out io.Writer, lines []string) {
	for _, l := range lines {
		fmt.Fprint(out, l)
	}
}

func (c *counts) test(action string) {
	switch action {
	case "pass":
		c.passed++
	case "fail":
		c.failed++
	case "skip":
		c.skipped++
	}
}

func (c *counts) report(out io.Writer) error {
	result, err := json.Marshal(map[string]int{"passed": c.passed, "failed": c.failed, "skipped": c.skipped, "packages": c.packages})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\nRESULT %s\n", c.passed, c.failed, c.skipped, result)
	if c.passed == 0 {
		return errors.New("no test ran")
	}
	return nil
}
