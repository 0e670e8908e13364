// SPDX-License-Identifier: Apache-2.0

// Command mutations shows that the simulation finds faults: it puts one after another into the
// product, each a line that a good engineer could have written, and runs the simulation on it. A
// mutation is found at the first history that breaks a promise and breaks none without it.
//
// The sources stay as they are: the compiler is told to read other files in their place. One
// program has nearly all mutations, and is told which to have.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

type options struct {
	root, only string
	workers    int
}

// result is the RESULT.
type result struct {
	Mutations int      `json:"mutations"`
	Found     int      `json:"found"`
	Seconds   int      `json:"seconds"`
	Missed    []string `json:"missed"`
	// Errors are of the table: a mutation that does not compile, or whose history crashes.
	Errors []string `json:"errors,omitempty"`
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "../..", "the repository's folder")
	flag.StringVar(&o.only, "only", "", "mutations whose name matches this regular expression; empty: all")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "simulations at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options, out io.Writer) error {
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	begin := time.Now()
	fmt.Fprintf(out, "compiling the simulation with %d mutations\n", len(chosen))
	h, err := newHunt(ctx, o.root, chosen)
	if err != nil {
		return err
	}
	defer h.close()
	r := result{Mutations: len(chosen), Missed: []string{}}
	next, ended := make(chan *mutation), sync.WaitGroup{}
	var mu sync.Mutex
	for range o.workers {
		ended.Go(func() {
			one := h.hunter()
			defer one.player.close() //nolint:errcheck // it is told to end
			for m := range next {
				at := time.Now()
				found, err := one.find(ctx, m)
				mu.Lock()
				r.add(m, &outcome{found, err, time.Since(at).Round(time.Second)}, out)
				mu.Unlock()
			}
		})
	}
	for i := range chosen {
		if ctx.Err() == nil {
			next <- &chosen[i]
		}
	}
	close(next)
	ended.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.Seconds = int(time.Since(begin).Seconds())
	return r.tell(out)
}

// choose returns the mutations of a name.
func choose(only string) ([]mutation, error) {
	name, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	var chosen []mutation
	for _, m := range mutations {
		if name.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("--only=%s: no mutation has such a name", only)
	}
	return chosen, nil
}

// outcome is what came of one mutation.
type outcome struct {
	found *verdict // nil: it was not
	err   error
	took  time.Duration
}

// add counts one mutation, and says what came of it.
func (r *result) add(m *mutation, o *outcome, out io.Writer) {
	switch {
	case errors.Is(o.err, context.Canceled):
	case o.err != nil:
		r.Errors = append(r.Errors, m.Name)
		fmt.Fprintf(out, "ERROR   %-28s %v\n", m.Name, o.err)
	case o.found == nil:
		r.Missed = append(r.Missed, m.Name)
		fmt.Fprintf(out, "MISSED  %-28s in %d histories, %s: %s\n", m.Name, m.Within, o.took, m.Why)
	default:
		r.Found++
		fmt.Fprintf(out, "found   %-28s %-24s history %3d of %3d, %s\n", m.Name, o.found.Promise, o.found.Seed, m.Within, o.took)
	}
}

func (r *result) tell(out io.Writer) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	fmt.Fprintf(out, "RESULT %s\n", text)
	var bad []string
	if len(r.Missed) > 0 {
		bad = append(bad, "not found: "+strings.Join(r.Missed, ", "))
	}
	if len(r.Errors) > 0 {
		bad = append(bad, "errors of the table: "+strings.Join(r.Errors, ", "))
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}
