// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// interval is between two looks at what is waited for.
const interval = 300 * time.Millisecond

// Eventually repeats a check until it holds. What did not hold last is the error.
func (s *Suite) Eventually(ctx context.Context, what string, check func(context.Context) error) error {
	limit := cmp.Or(s.Patience, patience)
	if s.Breaks != "" && s.Breaks != BreakUnsigned && s.started {
		limit = brokenPatience
	}
	var last error
	begin := time.Now()
	err := repeat(ctx, limit, interval, func(ctx context.Context) bool {
		err := check(ctx)
		if last == nil || ctx.Err() == nil {
			last = err // an end of the time is not what was wrong
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("%s, within %s: %w", what, limit, errors.Join(last, err))
	}
	if os.Getenv("TRACE") != "" {
		s.Say("      %s (%.1f s)", what, time.Since(begin).Seconds())
	}
	return nil
}

// Within is Eventually for what takes longer.
func (s *Suite) Within(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	longer := *s
	longer.Patience = limit
	return longer.Eventually(ctx, what, check)
}

// Throughout checks that something holds for a while, again and again.
func (s *Suite) Throughout(ctx context.Context, duration time.Duration, check func(context.Context) error) error {
	var broken error
	err := repeat(ctx, duration, interval, func(ctx context.Context) bool {
		if err := check(ctx); err != nil && ctx.Err() == nil { // else the time ended it
			broken = err
		}
		return broken != nil
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	return broken
}

// repeat looks until a check is over, or its time is. After a look that took long it waits as long:
// on an emulated node, looks would take the processor from what is waited for.
func repeat(ctx context.Context, limit, pause time.Duration, over func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		began := time.Now()
		if over(ctx) {
			return nil
		}
		rest := time.NewTimer(max(pause, time.Since(began)))
		select {
		case <-ctx.Done():
			rest.Stop()
			return ctx.Err()
		case <-rest.C:
		}
	}
}
