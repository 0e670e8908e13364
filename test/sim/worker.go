// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/test/sim/history"
	"github.com/drover-project/drover/test/sim/limits"
	"github.com/drover-project/drover/test/sim/world"
)

// shrinkTries bounds the histories that are tried to make one shorter.
const shrinkTries = 300

// work makes each history happen whose turn it is, and writes a line of JSON about each.
func work(ctx context.Context, o *options, out io.Writer) error {
	begin := time.Now()
	return at(ctx, o, func(play func(seed uint64) (*told, error)) error {
		for i := o.worker; i < o.histories && ctx.Err() == nil; i += o.workers {
			if o.minutes > 0 && time.Since(begin) > time.Duration(o.minutes*float64(time.Minute)) {
				break
			}
			h, err := play(o.seed + uint64(i)) //nolint:gosec // not negative
			if err != nil {
				return err
			}
			if o.trace {
				continue
			}
			if err := json.NewEncoder(out).Encode(h); err != nil {
				return fmt.Errorf("tell of a history: %w", err)
			}
		}
		return nil
	})
}

// ask is for one history, of a program with a mutation; empty: as it is.
type ask struct {
	Mutation string `json:"mutation"`
	Seed     uint64 `json:"seed"`
}

// answer makes the histories happen that it is asked for, and writes a line of JSON about each.
func answer(ctx context.Context, o *options, in io.Reader, out io.Writer) error {
	return at(ctx, o, func(play func(seed uint64) (*told, error)) error {
		asks := json.NewDecoder(in)
		for ctx.Err() == nil {
			var a ask
			if err := asks.Decode(&a); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("read which history is asked for: %w", err)
			}
			if err := os.Setenv("DROVER_SIM_MUTATION", a.Mutation); err != nil {
				return fmt.Errorf("choose the mutation: %w", err)
			}
			h, err := play(a.Seed)
			if err != nil {
				return err
			}
			if err := json.NewEncoder(out).Encode(h); err != nil {
				return fmt.Errorf("tell of a history: %w", err)
			}
		}
		return nil
	})
}

// at starts an API server, and a place for nodes' files, to play the histories of seeds.
func at(ctx context.Context, o *options, do func(play func(seed uint64) (*told, error)) error) error {
	debug.SetGCPercent(400)        // memory is there, and a fifth of the time was the collector's
	klog.SetLogger(logr.Discard()) // what the API server logs is not about histories
	ctrllog.SetLogger(logr.Discard())
	server, err := world.NewServer(ctx, o.root)
	if err != nil {
		return err
	}
	if o.only != "" {
		server.Without = map[string]bool{}
		for _, p := range world.Promises {
			server.Without[p.Name] = p.Name != o.only
		}
	}
	dir, err := os.MkdirTemp(quickDir(), "drover-sim-")
	if err != nil {
		return fmt.Errorf("make a directory for the nodes' files: %w", err)
	}
	defer os.RemoveAll(dir)
	shrunk := map[string]bool{}
	return do(func(seed uint64) (*told, error) { return one(server, dir, o, seed, shrunk) })
}

// one makes the history of a seed happen, and the first of each promise shorter.
func one(server *world.Server, dir string, o *options, seed uint64, shrunk map[string]bool) (*told, error) {
	begin := processor()
	corpus, err := history.Corpus()
	if err != nil {
		return nil, err
	}
	events := limits.Begin(seed, history.Generate(seed, o.length, world.Verbs(), corpus))
	digest := fnv.New64a()
	v, w, err := play(server, dir, events, func(line string) {
		_, _ = digest.Write([]byte(line)) // never fails
		if o.trace {
			fmt.Println(line)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", seed, err)
	}
	h := &told{Seed: seed, Events: len(events), Steps: w.Steps, CPU: processor() - begin, Digest: digest.Sum64(), States: w.Seen}
	if v == nil {
		return h, nil
	}
	h.Promise, h.Text = v.Promise, v.Text
	if shrunk[v.Promise] || o.trace || !o.shrink {
		return h, nil
	}
	shrunk[v.Promise] = true
	h.Shrunk = history.Shrink(events, func(shorter []history.Event) bool {
		again, _, e := play(server, dir, shorter, func(string) {})
		err = e
		return again != nil && again.Promise == v.Promise
	}, shrinkTries)
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", seed, err)
	}
	_, _, err = play(server, dir, h.Shrunk, func(line string) { h.Trace = append(h.Trace, line) })
	return h, err
}

// play makes a history happen.
func play(server *world.Server, dir string, events []history.Event, line func(string)) (*world.Violation, *world.World, error) {
	w, err := server.New(dir)
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	w.Trace = func(format string, args ...any) { line(w.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)) }
	return w.Run(events), w, nil
}

// quickDir is where files cost no disk, if there is such a place.
func quickDir() string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		return memory
	}
	return ""
}

// processor is the time that this process has had of a processor.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
