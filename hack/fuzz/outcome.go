// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// outcome is what became of one target.
type outcome struct {
	name       string // package and function
	executions int
	failed     bool
	// input is the file with what crashed the target, relative to the package; it is empty if a seed
	// did, or nothing was found.
	input string
	// says is the first thing that was said about a failure.
	says string
}

var (
	counted = regexp.MustCompile(`^fuzz: elapsed: [^,]+, execs: (\d+) `)
	written = regexp.MustCompile(`^\s*Failing input written to (\S+)$`)
	// header is what the testing package prints above what a test says.
	header = regexp.MustCompile(`^\s*(--- FAIL: |FAIL$|failure while testing seed corpus entry: |$)`)
	// progress is what is said about nothing that is wrong.
	progress = regexp.MustCompile(`^(fuzz: |warning: the test binary was not built with coverage |PASS$|=== )`)
)

// maxLine is the longest line that is read of a target's output; a failing one may print its input.
const maxLine = 16 << 20

// read takes in a target's output while it is written, and leaves the progress out of what it
// copies.
func (o *outcome) read(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := lines.Text()
		if found := counted.FindStringSubmatch(line); found != nil {
			n, err := strconv.Atoi(found[1])
			if err != nil {
				return fmt.Errorf("read the number of executions: %w", err)
			}
			o.executions = n
		}
		if progress.MatchString(line) {
			continue
		}
		fmt.Fprintln(out, line)
		if found := written.FindStringSubmatch(line); found != nil {
			o.input = found[1]
		}
		if o.says == "" && !header.MatchString(line) {
			o.says = strings.TrimSpace(line)
		}
	}
	return lines.Err()
}

// ended takes in how the program ended. Go's fuzzing sometimes takes the end of its own time for a
// failure, and then there is neither an input nor another word: https://go.dev/issue/75804.
func (o *outcome) ended(err error) {
	if err == nil || o.input == "" && o.says == "context deadline exceeded" && o.executions > 0 {
		return
	}
	o.failed = true
	if o.says == "" {
		o.says = err.Error()
	}
}

// problem is why the target is red, in words; empty if it is green.
func (o *outcome) problem(least int) string {
	switch {
	case o.failed && o.input != "":
		return fmt.Sprintf("%s (%s)", o.says, o.input)
	case o.failed:
		return o.says
	case o.executions < least:
		return fmt.Sprintf("%d executions, and at least %d were asked for", o.executions, least)
	}
	return ""
}
