// SPDX-License-Identifier: Apache-2.0

// Package watchdog notices that the agent's loop hangs.
//
// The loop says what it is about to do (Step), and that it waits for an event (Rest). What lawfully
// takes long, such as the copy of a large file, tells its progress (Alive). While the loop works
// and says nothing for longer than a limit, it hangs.
package watchdog

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// looks is how often the loop is looked at within the limit. Looks are counted, not clocks
// compared: while the whole machine stood still, there was no look either.
const looks = 10

// Watchdog watches one loop. Its methods may be called concurrently; on a nil Watchdog, they do
// nothing.
type Watchdog struct {
	limit time.Duration

	mu    sync.Mutex
	armed bool
	doing string
	told  uint64 // how often the loop has told something

	seen   uint64 // what told was at the last look
	silent int    // looks since then
}

// New makes a Watchdog of a loop that may be silent for limit while it works.
func New(limit time.Duration) *Watchdog { return &Watchdog{limit: limit} }

// HungError says that the loop hangs.
type HungError struct {
	Doing string        // what it began last
	Limit time.Duration // for how long, at least, it has told nothing since
}

func (e *HungError) Error() string {
	return fmt.Sprintf("the agent has made no progress for %s in this step: %s", e.Limit, e.Doing)
}

// Step says what the loop begins now.
func (w *Watchdog) Step(format string, args ...any) {
	if w == nil {
		return
	}
	doing := fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed, w.doing = true, doing
	w.told++
}

// Alive says that the step goes on.
func (w *Watchdog) Alive() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told++
}

// Rest says that the loop waits for an event, for however long.
func (w *Watchdog) Rest() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
}

// Reader is r, each read of which tells that the step goes on.
func (w *Watchdog) Reader(r io.Reader) io.Reader { return reader{r, w} }

type reader struct {
	io.Reader
	w *Watchdog
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.w.Alive()
	return n, err //nolint:wrapcheck // io.EOF must stay what it is
}

// Watch looks at the loop until ctx ends. It returns a *HungError as soon as the loop hangs.
func (w *Watchdog) Watch(ctx context.Context, clk clock.WithTicker) error {
	ticker := clk.NewTicker(max(w.limit/looks, 1))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := w.Look(); err != nil {
			return err
		}
	}
}

// Look is one of the ten looks that Watch makes in the limit: after so many that found nothing new,
// while the loop works, it returns a *HungError.
func (w *Watchdog) Look() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.armed || w.told != w.seen {
		w.seen, w.silent = w.told, 0
		return nil
	}
	if w.silent++; w.silent < looks {
		return nil
	}
	return &HungError{Doing: w.doing, Limit: w.limit}
}
