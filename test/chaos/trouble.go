// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	// killPeriod is how long an operator lives.
	killPeriod = 2 * time.Second
	// maxKilling is how long one upgrade is done under kills. What is left then, an operator that
	// lives does.
	maxKilling = 40 * time.Second
	// reboots is how many nodes reboot at once; of a small fleet, two of five.
	reboots = 200
	// restarts of the API server in one upgrade.
	restarts = 3
)

// killer kills the operator every few seconds and starts it again at once.
type killer struct {
	f     *fleet.Fleet
	say   func(string, ...any)
	kills atomic.Int64
	exits atomic.Int64
	// spans are the times of killing.
	spans []span
}

type span struct{ begin, end time.Time }

// start kills until stop is called, or for a while, and from then on only starts an operator that
// ended by itself, as a kubelet does: when the last kill and an outage meet, nothing else would. In
// the end an operator runs.
func (k *killer) start(ctx context.Context, longest time.Duration) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	begin := time.Now()
	go func() {
		tick := time.NewTicker(killPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-tick.C:
			}
			act := k.kill
			if time.Since(begin) > longest {
				act = k.revive
			}
			if err := act(context.WithoutCancel(ctx)); err != nil {
				ended <- err
				return
			}
		}
	}()
	return func() error {
		cancel()
		err := <-ended
		k.spans = append(k.spans, span{begin, begin.Add(min(longest, time.Since(begin)))})
		return errors.Join(err, k.revive(context.WithoutCancel(ctx)))
	}
}

// kill ends the operator, if it has not ended by itself, and starts another.
func (k *killer) kill(ctx context.Context) error {
	switch err := k.f.Operator.Kill(); {
	case err == nil:
		k.kills.Add(1)
	case errors.Is(err, os.ErrProcessDone):
		k.exits.Add(1) // no API server, for one
	default:
		return err
	}
	return k.f.StartOperator(ctx)
}

// revive starts an operator if there is none.
func (k *killer) revive(ctx context.Context) error {
	if k.f.Operator.Running() {
		return nil
	}
	k.exits.Add(1)
	return k.f.StartOperator(ctx)
}

func (s *scene) none(context.Context) error { return nil }

// rebootMany reboots many nodes at once.
func (s *scene) rebootMany(ctx context.Context) error {
	n := min(reboots, s.nodes*2/5)
	s.say("rebooting %d nodes at once", n)
	begin := time.Now()
	var all errgroup.Group
	for _, i := range s.random.Perm(s.nodes)[:n] {
		all.Go(func() error { return s.f.Debug(ctx, fmt.Sprintf("/reboot?node=hollow-%d", i)) })
	}
	err := all.Wait()
	s.say("rebooted in %.1f s", time.Since(begin).Seconds())
	return err
}

// outages stops the API server and starts it again, some times.
func (s *scene) outages(ctx context.Context) error {
	for range restarts {
		away := time.Second + time.Duration(s.random.Int64N(int64(2*time.Second)))
		took, err := s.f.Outage(ctx, away)
		if err != nil {
			return err
		}
		s.result.APIRestarts++
		s.away += took
		s.say("the API server was away for %.1f s", took.Seconds())
		if err := pause(ctx, time.Duration(s.random.Int64N(int64(4*time.Second)))); err != nil {
			return err
		}
	}
	return nil
}

// pause lets time pass: it is part of what happens, not a wait for something.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
