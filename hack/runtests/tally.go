// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/drover-project/drover/hack/gotest"
)

const (
	module = "github.com/drover-project/drover/"
	// listed is how many of the slowest are named.
	listed = 10
)

// took is how long a test or a package took. Tests that wait for their turn do not count the wait.
type took struct {
	// Name is the package, and the test after a space.
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// tally of what a run's tests came to, subtests included.
type tally struct {
	passed, failed, skipped, packages, cached int
	// seconds of tests, by package and by name. Of a package whose result Go kept from an earlier run
	// there are none.
	seconds map[string]map[string]float64
	// wall is the seconds of each package's run.
	wall []took
}

func newTally() *tally { return &tally{seconds: map[string]map[string]float64{}} }

// follow prints packages as they end, and the output of every failed test or build.
func (c *tally) follow(in io.Reader, out io.Writer) error {
	output := map[string][]string{}
	return gotest.Each(in, func(e *gotest.Event) {
		key := e.Package + e.ImportPath + " " + e.Test
		switch {
		case e.Action == "output" || e.Action == "build-output":
			output[key] = append(output[key], e.Output)
		case e.Action == "build-fail":
			show(out, output[key])
		case e.Test != "":
			c.test(e)
			if e.Action == "fail" {
				fmt.Fprintf(out, "--- FAIL: %s %s (%.2fs)\n", e.Package, e.Test, e.Elapsed)
				show(out, output[key])
			}
			if e.Action == "pass" || e.Action == "skip" {
				delete(output, key)
			}
		case e.Action == "pass":
			kept := ""
			if slices.ContainsFunc(output[key], isCached) {
				kept = " (cached)"
				c.cached++
				delete(c.seconds, e.Package)
			}
			c.ended(e)
			fmt.Fprintf(out, "ok  \t%s\t%.3fs%s\n", e.Package, e.Elapsed, kept)
		case e.Action == "fail":
			c.ended(e)
			show(out, output[key])
			fmt.Fprintf(out, "FAIL\t%s\t%.3fs\n", e.Package, e.Elapsed)
		}
	}, func(line string) { fmt.Fprintln(out, line) })
}

// isCached is true for what go prints of a package that it did not test again.
func isCached(line string) bool {
	return strings.HasPrefix(line, "ok  \t") && strings.HasSuffix(strings.TrimSpace(line), "\t(cached)")
}

func show(out io.Writer, lines []string) {
	for _, l := range lines {
		fmt.Fprint(out, l)
	}
}

func (c *tally) test(e *gotest.Event) {
	switch e.Action {
	case "pass":
		c.passed++
	case "fail":
		c.failed++
	case "skip":
		c.skipped++
	default:
		return
	}
	if c.seconds[e.Package] == nil {
		c.seconds[e.Package] = map[string]float64{}
	}
	c.seconds[e.Package][e.Test] = e.Elapsed
}

func (c *tally) ended(e *gotest.Event) {
	c.packages++
	c.wall = append(c.wall, took{Name: strings.TrimPrefix(e.Package, module), Seconds: e.Elapsed})
}

// slowestTests are those without subtests that took longest, and slowest first.
func (c *tally) slowestTests() []took {
	var all []took
	for pkg, tests := range c.seconds {
		names := slices.Sorted(maps.Keys(tests))
		for _, name := range names {
			if !slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
				all = append(all, took{Name: strings.TrimPrefix(pkg, module) + " " + name, Seconds: tests[name]})
			}
		}
	}
	return longest(all)
}

func longest(all []took) []took {
	slices.SortFunc(all, func(a, b took) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), strings.Compare(a.Name, b.Name))
	})
	return all[:min(listed, len(all))]
}

func list(out io.Writer, heading string, all []took) {
	fmt.Fprintln(out, heading+":")
	for _, one := range all {
		fmt.Fprintf(out, "%8.1f s  %s\n", one.Seconds, one.Name)
	}
}

func (c *tally) report(out io.Writer, spent cost) error {
	tests, packages := c.slowestTests(), longest(c.wall)
	list(out, "slowest packages", packages)
	list(out, "slowest tests", tests)
	result, err := json.Marshal(map[string]any{
		"passed": c.passed, "failed": c.failed, "skipped": c.skipped, "packages": c.packages, "cached": c.cached,
		"seconds": int(spent.wall.Seconds()), "cpuSeconds": int(spent.cpu.Seconds()), "slowest": tests,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%.0f s, with %.0f CPU seconds (compiling included)\n%d passed, %d failed, %d skipped\nRESULT %s\n",
		spent.wall.Seconds(), spent.cpu.Seconds(), c.passed, c.failed, c.skipped, result)
	if c.passed == 0 {
		return errors.New("no test ran")
	}
	return nil
}
