// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drover-project/drover/hack/gotest"
)

// group is a set of tests.
type group struct {
	name string
	// prefix of its tests' names.
	prefix string
}

const failures = "failures"

var known = []group{{"lifecycle", "TestLifecycle"}, {"rollout", "TestRollout"}, {"preflight", "TestPreflight"}, {failures, "TestFailure"}}

// groupsOf reads a list of names; an empty one is all of them.
func groupsOf(chosen string) ([]group, error) {
	if chosen == "" {
		return known, nil
	}
	var groups []group
	for _, name := range strings.Split(chosen, ",") {
		i := slices.IndexFunc(known, func(g group) bool { return g.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("there is no group %q", name)
		}
		if !slices.Contains(groups, known[i]) {
			groups = append(groups, known[i])
		}
	}
	return groups, nil
}

// pattern matches the names of all tests of the groups.
func pattern(groups []group) string {
	var prefixes []string
	for _, g := range groups {
		prefixes = append(prefixes, g.prefix)
	}
	return "^(" + strings.Join(prefixes, "|") + ")"
}

// reasonLine is what a test logs when it has seen a reason.
var reasonLine = regexp.MustCompile(`\bREASON (\S+) ([0-9.]+)\s*$`)

// tally is what came of the tests.
type tally struct {
	groups  []group
	passed  map[string]map[string]bool
	reasons map[string]float64 // the longest that each took, in seconds
}

func newTally(groups []group) *tally {
	t := &tally{groups: groups, passed: map[string]map[string]bool{}, reasons: map[string]float64{}}
	for _, g := range groups {
		t.passed[g.name] = map[string]bool{}
	}
	return t
}

// follow prints a line per test as it ends, and the output of what failed.
func (t *tally) follow(in io.Reader, out io.Writer) error {
	output := map[string][]string{}
	return gotest.Each(in, func(e *gotest.Event) {
		top, _, _ := strings.Cut(e.Test, "/")
		key := e.Package + e.ImportPath + " " + top
		switch {
		case e.Action == "output" || e.Action == "build-output":
			output[key] = append(output[key], e.Output)
			t.reason(e.Output)
		case e.Action == "build-fail" || e.Action == "fail" && e.Test == "":
			fmt.Fprint(out, strings.Join(output[key], ""))
		case e.Test == top && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
			t.ended(e, output[key], out)
			delete(output, key)
		}
	}, func(line string) { fmt.Fprintln(out, line) })
}

// ended notes the end of a test; one that was skipped has not passed.
func (t *tally) ended(e *gotest.Event, output []string, out io.Writer) {
	for _, g := range t.groups {
		if rest, ok := strings.CutPrefix(e.Test, g.prefix); ok && e.Test != "" {
			if e.Action != "pass" {
				fmt.Fprint(out, strings.Join(output, ""))
			}
			fmt.Fprintf(out, "%-4s  %-9s  %s  %.1fs\n", e.Action, g.name, lowerFirst(rest), e.Elapsed)
			t.passed[g.name][lowerFirst(rest)] = e.Action == "pass"
		}
	}
}

func (t *tally) reason(line string) {
	m := reasonLine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	if seconds, err := strconv.ParseFloat(m[2], 64); err == nil {
		t.reasons[m[1]] = max(t.reasons[m[1]], seconds)
	}
}

// result is what RESULT says.
func (t *tally) result(took time.Duration) map[string]any {
	r := map[string]any{"seconds": tenth(took.Seconds())}
	for _, g := range t.groups {
		r[g.name] = t.passed[g.name]
		if g.name == failures {
			slowest := ""
			for reason, seconds := range t.reasons {
				if slowest == "" || seconds > t.reasons[slowest] || seconds == t.reasons[slowest] && reason < slowest {
					slowest = reason
				}
			}
			r["reasons"], r["slowestReason"], r["slowestSeconds"] = len(t.reasons), slowest, tenth(t.reasons[slowest])
		}
	}
	return r
}

// verdict objects to a test that did not pass and to a group without tests.
func (t *tally) verdict() error {
	var problems []error
	for _, g := range t.groups {
		if len(t.passed[g.name]) == 0 {
			problems = append(problems, fmt.Errorf("no test ran in the group %s", g.name))
		}
		for name, passed := range t.passed[g.name] {
			if !passed {
				problems = append(problems, fmt.Errorf("%s %s did not pass", g.name, name))
			}
		}
	}
	return errors.Join(problems...)
}

func tenth(seconds float64) float64 { return math.Round(seconds*10) / 10 }

func lowerFirst(name string) string {
	r, size := utf8.DecodeRuneInString(name)
	if size == 0 {
		return name
	}
	return string(unicode.ToLower(r)) + name[size:]
}
