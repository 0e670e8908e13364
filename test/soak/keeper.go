// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	// pause is how long an operator that ended by itself is down, as after a kubelet's first back-off.
	restartPause = time.Second
	// excuse is how long after the API server was away, or refused, an operator's end may be due to
	// that: it waits so long for its caches.
	excuse = 2 * time.Minute
)

// keeper starts the operator again whenever it ends, as a kubelet does.
type keeper struct {
	f   *fleet.Fleet
	say func(string, ...any)

	mu sync.Mutex
	// kills were ours; exits are ends by itself, and crashes those that nothing excuses.
	kills, exits, crashes int
	// unwell is how many troubles of the API server there are now, and well since when there is none.
	unwell int
	well   time.Time
}

// run keeps the operator until ctx ends. One runs then.
func (k *keeper) run(ctx context.Context) error {
	for {
		k.mu.Lock()
		p := k.f.Operator
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-p.Ended():
		}
		if err := k.ended(ctx, p); err != nil {
			return err
		}
	}
}

func (k *keeper) ended(ctx context.Context, p *fleet.Process) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.f.Operator != p {
		return nil // it was killed, and another runs
	}
	k.exits++
	if k.unwell == 0 && time.Since(k.well) > excuse {
		k.crashes++
		k.say("the operator ended by itself; its log is %s", p.Log())
	}
	select {
	case <-ctx.Done():
	case <-time.After(restartPause):
	}
	return k.f.StartOperator(context.WithoutCancel(ctx))
}

// kill ends the operator by SIGKILL and starts another.
func (k *keeper) kill(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.f.Operator.Running() {
		return nil // the keeper is about to start it
	}
	if err := k.f.Operator.Kill(); err != nil {
		return err
	}
	k.kills++
	return k.f.StartOperator(ctx)
}

// trouble notes that the API server does not serve Drover, until the function that it returns is
// called.
func (k *keeper) trouble() (over func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unwell++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.unwell--
		k.well = time.Now()
	}
}

// operator is the process that runs now.
func (k *keeper) operator() *fleet.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.f.Operator
}
