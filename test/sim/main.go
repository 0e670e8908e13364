// SPDX-License-Identifier: Apache-2.0

// Command sim makes histories of a simulated cluster happen, one for each seed, and judges them by
// promises: the operator, three nodes' agents and the API server are the real ones, in one
// goroutine, on one clock. A history that breaks a promise is made shorter, and told as a trace and
// as lines for a test.
//
// A seed gives the same history on every machine. docs/design/0046-simulation.md says how to read a
// trace, and how to add what can happen and what is promised.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-project/drover/test/sim/history"
	"github.com/drover-project/drover/test/sim/states"
	"github.com/drover-project/drover/test/sim/world"
)

type options struct {
	seed      uint64
	histories int
	length    int
	minutes   float64
	only      string
	trace     bool
	shrink    bool
	workers   int
	grow      bool
	root      string
	worker    int // which of the workers this process is; -1: the one that starts them
	asked     bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "the first history's seed; each next history has the next")
	flag.IntVar(&o.histories, "histories", 200, "how many histories, at most")
	flag.IntVar(&o.length, "events", 60, "events of each history")
	flag.Float64Var(&o.minutes, "minutes", 0, "begin no history after so many minutes; 0: no limit")
	flag.StringVar(&o.only, "only", "", "judge by this promise alone")
	flag.BoolVar(&o.trace, "trace", false, "print what happens in each history (with one worker)")
	flag.BoolVar(&o.shrink, "shrink", true, "make the first history that breaks a promise shorter")
	flag.BoolVar(&o.grow, "grow", false, "add the beginnings of histories that lead to rare states to history/corpus.txt")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "processes at work")
	flag.StringVar(&o.root, "root", "../..", "the repository's folder")
	flag.IntVar(&o.worker, "worker", -1, "for sim itself")
	flag.BoolVar(&o.asked, "asked", false, "make the histories happen that standard input asks for, for test/sim/mutations")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	known := map[string]bool{}
	for _, p := range world.Promises {
		known[p.Name] = true
	}
	if o.only != "" && !known[o.only] {
		return fmt.Errorf("--only=%s: no promise has this name; the promises are %s", o.only, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	if o.trace {
		o.workers, o.worker = 1, 0
	}
	if o.asked {
		return answer(ctx, o, os.Stdin, os.Stdout)
	}
	if o.worker >= 0 {
		return work(ctx, o, os.Stdout)
	}
	s, err := lead(ctx, o)
	if err != nil {
		return err
	}
	if o.grow {
		if err := s.grow(o); err != nil {
			return err
		}
	}
	return s.tell(os.Stdout)
}

// told is what a worker tells of a history.
type told struct {
	Seed   uint64        `json:"seed"`
	Events int           `json:"events"`
	Steps  int           `json:"steps"`
	CPU    time.Duration `json:"cpu"`
	Digest uint64        `json:"digest"` // of the trace
	// States are those that nodes were in, and after how many events first.
	States  map[states.State]int `json:"states"`
	Promise string               `json:"promise,omitempty"`
	Text    string               `json:"text,omitempty"`
	// Shrunk is the shortest history that was found to break the promise, Trace what happens in it.
	Shrunk []history.Event `json:"shrunk,omitempty"`
	Trace  []string        `json:"trace,omitempty"`
}

// summary is the RESULT.
type summary struct {
	Histories int     `json:"histories"`
	Events    int     `json:"events"`
	Steps     int     `json:"steps"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"perSecond"` // histories per second of a processor
	Promises  int     `json:"promises"`
	Verbs     int     `json:"verbs"`
	// States are how many states a node was in for a Module, of all that can be written down.
	States     int            `json:"states"`
	StatesOf   int            `json:"statesOf"`
	Violations int            `json:"violations"`
	Known      map[string]int `json:"known"`
	FirstSeed  uint64         `json:"firstSeed"`
	// Digest is of all traces: two runs of the same histories have the same.
	Digest string `json:"digest"`

	found map[string]told // the first violation of each promise
	times map[string]int
	// seen are the states, with the shortest history that leads to each; 0: only at an end.
	seen map[states.State]beginning
	met  map[states.State]int // by how many histories

	digest uint64
}

// beginning is so many events of a seed's history.
type beginning struct {
	seed   uint64
	events int
}

// lead starts the workers and sums up what they tell.
func lead(ctx context.Context, o *options) (*summary, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	histories, ended := make(chan told), make(chan error)
	for i := range o.workers {
		go func() { ended <- follow(ctx, self, i, histories) }()
	}
	begin, spoke, cpu := time.Now(), time.Now(), time.Duration(0)
	s := &summary{Promises: len(world.Promises), Verbs: len(world.Verbs()), Known: map[string]int{}, FirstSeed: o.seed, StatesOf: states.Count,
		found: map[string]told{}, times: map[string]int{}, seen: map[states.State]beginning{}, met: map[states.State]int{}}
	fmt.Printf("%d workers, histories of %d events from seed %d on; each worker's API server starts\n", o.workers, o.length, o.seed)
	var failed []error
	for left := o.workers; left > 0; {
		select {
		case h := <-histories:
			cpu += h.CPU
			s.add(h)
			if h.Promise != "" { // now, since a run of hours may be ended
				fmt.Printf("[%4.0fs] seed %d breaks %s: %s\n", time.Since(begin).Seconds(), h.Seed, h.Promise, h.Text)
			}
		case err := <-ended:
			failed = append(failed, err)
			left--
		}
		if time.Since(spoke) > 10*time.Second {
			spoke = time.Now()
			fmt.Printf("[%4.0fs] %d of %d histories, %d violations\n", time.Since(begin).Seconds(), s.Histories, o.histories, s.Violations)
		}
	}
	s.Seconds = time.Since(begin).Seconds()
	s.PerSecond = float64(s.Histories) / max(cpu.Seconds(), 1e-9)
	return s, errors.Join(failed...)
}

// follow runs one worker.
func follow(ctx context.Context, self string, i int, histories chan<- told) error {
	c := exec.CommandContext(ctx, self, append(os.Args[1:], fmt.Sprint("--worker=", i))...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return fmt.Errorf("worker %d: %w", i, err)
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("worker %d: %w", i, err)
	}
	lines := json.NewDecoder(bufio.NewReader(out))
	for {
		var h told
		err := lines.Decode(&h)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(fmt.Errorf("worker %d: %w", i, err), c.Wait())
		}
		histories <- h
	}
	if err := c.Wait(); err != nil {
		return fmt.Errorf("worker %d: %w", i, err)
	}
	return nil
}

func (s *summary) add(h told) {
	s.Histories++
	s.Events += h.Events
	s.Steps += h.Steps
	s.digest ^= h.Digest
	for state, after := range h.States {
		s.met[state]++
		if b, has := s.seen[state]; !has || after > 0 && (b.events == 0 || after < b.events || after == b.events && h.Seed < b.seed) {
			s.seen[state] = beginning{h.Seed, after}
		}
	}
	s.States = len(s.seen)
	if h.Promise == "" {
		return
	}
	s.times[h.Promise]++
	if world.Known(h.Promise) {
		s.Known[h.Promise]++
	} else {
		s.Violations++
	}
	if first, ok := s.found[h.Promise]; !ok || h.Seed < first.Seed || first.Shrunk == nil {
		s.found[h.Promise] = h
	}
}

// tell prints each broken promise with the shortest history that was found, and the RESULT.
func (s *summary) tell(out io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(s.found)) {
		h := s.found[name]
		fmt.Fprintf(out, "\n=== %s, broken in %d histories; seed %d: %s\n", name, s.times[name], h.Seed, h.Text)
		for _, line := range h.Trace {
			fmt.Fprintln(out, line)
		}
		if len(h.Shrunk) > 0 {
			fmt.Fprintln(out, "\nAs a history that is kept (test/sim/world/world_test.go):")
			fmt.Fprintf(out, "\t{%q, %s},\n", name, history.Literal(h.Shrunk))
		}
	}
	s.Digest = fmt.Sprintf("%016x", s.digest)
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "RESULT %s\n", text)
	if s.Violations > 0 {
		return fmt.Errorf("%d histories broke a promise", s.Violations)
	}
	return nil
}
