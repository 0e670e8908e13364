// SPDX-License-Identifier: Apache-2.0

// Command e2e runs groups of the tests in test/e2e, all on one fleet of hollow nodes, and says for
// each what came of it. GROUP chooses: a list of lifecycle, rollout, preflight and failures; all of
// them when it is empty. A group's tests are told by their names. `make test` runs the same tests,
// without the summary.
//
// The last line is RESULT with what each test came to, by group. Tests of failures log how long a
// reason took to be seen, as "REASON <reason> <seconds>"; RESULT has how many reasons that were,
// and the slowest.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/drover-project/drover/hack/gotest"
)

// timeout bounds all groups together, the start of the fleet included.
const timeout = "45m"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	green, err := run(ctx, os.Getenv("GROUP"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	if !green {
		os.Exit(1)
	}
}

// run reports whether all was as it must be. RESULT is its last line.
func run(ctx context.Context, chosen string) (green bool, err error) {
	groups, err := groupsOf(chosen)
	if err != nil {
		return false, err
	}
	fmt.Println("starting a fleet (the first run compiles; minutes on 2 cores)")
	t, began := newTally(groups), time.Now()
	failed := gotest.Run(ctx, gotest.Plain, []string{"-v", "-count=1", "-timeout", timeout, "-run", pattern(groups), "./test/e2e"},
		func(out io.Reader) error {
			return t.follow(out, os.Stdout)
		})
	result, err := json.Marshal(t.result(time.Since(began)))
	if err != nil {
		return false, fmt.Errorf("encode the result: %w", err)
	}
	err = errors.Join(failed, t.verdict())
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	fmt.Printf("RESULT %s\n", result)
	return err == nil, nil
}
