// SPDX-License-Identifier: Apache-2.0

// Command fuzz runs each fuzz target of the module, one after another: it feeds what parses foreign
// bytes with bytes that nobody thought of. FUZZTIME is how long each runs, a time such as 60s or a
// number of executions such as 1000x, and ONLY is a regular expression for the targets to run,
// matched with "package.FuzzName".
//
// A time is guided by coverage: inputs that reach new code are kept and changed further. For that,
// all that a test links is compiled again, which takes minutes the first time. A number of
// executions goes without, and only changes the seeds.
//
// It goes on after a crash. A crash is red, and so is a target with fewer executions than asked
// for: the number in FUZZTIME, or 100,000 for a time of a minute or more. A target that has fewer
// after its time, as on a busy machine, gets the time again, up to five times in all. The input
// that crashes stays in the package's testdata/fuzz, where `go test` finds it: add it to the mend.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, ".", cmp.Or(os.Getenv("FUZZTIME"), "60s"), os.Getenv("ONLY"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// length is how long each target runs.
type length struct {
	text string
	// guided by coverage.
	guided bool
	// least is the number of executions below which a target is red.
	least int
	// limit is when a target that has not ended is stuck.
	limit time.Duration
}

const (
	// slack is what a target may take beside the fuzzing: seeds, workers, what was found before.
	slack = 2 * time.Minute
	// longest is the limit for a number of executions.
	longest = 20 * time.Minute
)

func parseLength(text string) (length, error) {
	if number, ok := strings.CutSuffix(text, "x"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return length{}, fmt.Errorf("FUZZTIME is %q, and a number of executions is written 1000x", text)
		}
		return length{text: text, least: n, limit: longest}, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return length{}, fmt.Errorf("FUZZTIME is %q, and it is a time (60s) or a number of executions (1000x)", text)
	}
	l := length{text: text, guided: true, least: 1, limit: d + slack}
	if d >= time.Minute {
		l.least = 100_000
	}
	return l, nil
}

// result is what is printed at the end.
type result struct {
	Targets    int `json:"targets"`
	Executions int `json:"executions"`
	Fewest     int `json:"fewest"` // executions of a target
	Crashes    int `json:"crashes"`
	Seconds    int `json:"seconds"`
}

// run runs the targets of the Go module at root that match a pattern.
func run(ctx context.Context, out io.Writer, root, fuzztime, only string) error {
	begin := time.Now()
	l, err := parseLength(fuzztime)
	if err != nil {
		return err
	}
	packages, err := find(root, only)
	if err != nil {
		return err
	}
	f, err := newFuzzer(ctx, out, root, l)
	if err != nil {
		return err
	}
	defer f.close()
	var sum result
	var red []string
	for _, p := range packages {
		for _, o := range f.all(ctx, p) {
			if problem := o.problem(l.least); problem != "" {
				red = append(red, o.name+": "+problem)
			}
			if sum.Executions += o.executions; sum.Targets == 0 || o.executions < sum.Fewest {
				sum.Fewest = o.executions
			}
			if sum.Targets++; o.failed {
				sum.Crashes++
			}
		}
	}
	sum.Seconds = int(time.Since(begin).Seconds())
	text, err := json.Marshal(sum)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	for _, one := range red {
		fmt.Fprintln(out, "RED", one)
	}
	fmt.Fprintf(out, "RESULT %s\n", text)
	if len(red) > 0 {
		return errors.New("red: " + strings.Join(red, "; "))
	}
	return ctx.Err()
}
