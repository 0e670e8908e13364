// SPDX-License-Identifier: Apache-2.0

// Package upset is what can go wrong with a hollow node around its kernel: its clock jumps, its
// agent dies in the middle of its work, its disk is full.
package upset

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Clock is a wall clock that can be wrong. Timers and tickers go on as before, as those of a
// process whose machine is given another time do. Its times have no monotonic part, so that a step
// is to come between two lives of a process.
type Clock struct {
	clock.WithTicker
	off atomic.Int64
}

// NewClock is right at first.
func NewClock(right clock.WithTicker) *Clock { return &Clock{WithTicker: right} }

// Set makes it wrong by so much; 0 makes it right again.
func (c *Clock) Set(off time.Duration) { c.off.Store(int64(off)) }

// Now is what the clock shows.
func (c *Clock) Now() time.Time { return c.WithTicker.Now().Round(0).Add(time.Duration(c.off.Load())) }

// Since is how long ago a time was, as far as the clock knows.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
