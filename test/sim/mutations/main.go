// SPDX-License-Identifier: Apache-2.0

// Command mutations shows that the simulation finds faults: it puts one after another into the
// product, each a line that a good engineer could have written, and runs the simulation on it. A
// mutation is found at the first history that breaks a promise and breaks none without it.
//
// The sources stay as they are: the compiler is told to read another file in a file's place.
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
	"strings"
	"syscall"
	"time"
)

type options struct{ root, only string }

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
	h, err := newHunt(o.root)
	if err != nil {
		return err
	}
	defer h.close()
	begin := time.Now()
	fmt.Fprintln(out, "compiling the simulation, and its histories without a mutation")
	if err := h.learn(ctx, most(chosen)); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %d histories break a promise without a mutation\n", h.broken(), len(h.clean))
	r := result{Mutations: len(chosen), Missed: []string{}}
	for i := range chosen {
		if err := r.add(ctx, h, &chosen[i], out); err != nil {
			return err
		}
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

// most is how many histories any of them may take.
func most(all []mutation) (n int) {
	for i := range all {
		n = max(n, all[i].Within)
	}
	return n
}

// add looks for one mutation, and says what came of it. The error is about all of them.
func (r *result) add(ctx context.Context, h *hunt, m *mutation, out io.Writer) error {
	begin := time.Now()
	found, err := h.find(ctx, m)
	took := time.Since(begin).Round(time.Second)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		r.Errors = append(r.Errors, m.Name)
		fmt.Fprintf(out, "ERROR   %-28s %v\n", m.Name, err)
	case found == nil:
		r.Missed = append(r.Missed, m.Name)
		fmt.Fprintf(out, "MISSED  %-28s in %d histories, %s: %s\n", m.Name, m.Within, took, m.Why)
	default:
		r.Found++
		fmt.Fprintf(out, "found   %-28s %-24s history %3d of %3d, %s\n", m.Name, found.Promise, found.Seed, m.Within, took)
	}
	return nil
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
