// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestWhenALoopHangs: each case is what the loop tells, before each of so many looks.
func TestWhenALoopHangs(t *testing.T) {
	silent := func(*Watchdog, int) {}
	cases := map[string]struct {
		begin  func(*Watchdog)
		before func(w *Watchdog, look int)
		hangs  int // the look that finds it; 0: none
	}{
		"never begun":    {func(*Watchdog) {}, silent, 0},
		"silent":         {func(w *Watchdog) { w.Step("a load") }, silent, looks + 1},
		"waits":          {func(w *Watchdog) { w.Step("a load"); w.Rest() }, silent, 0},
		"works":          {func(*Watchdog) {}, func(w *Watchdog, _ int) { w.Step("a load") }, 0},
		"copies":         {func(w *Watchdog) { w.Step("an import") }, func(w *Watchdog, _ int) { w.Alive() }, 0},
		"is slow":        {func(w *Watchdog) { w.Step("a load") }, every(looks-1, func(w *Watchdog) { w.Step("a load") }), 0},
		"works and ends": {func(w *Watchdog) { w.Step("a load") }, every(looks-1, (*Watchdog).Rest), 0},
		"hangs later":    {func(w *Watchdog) { w.Rest() }, once(20, func(w *Watchdog) { w.Step("a load") }), 20 + looks},
		"hangs in a file that was read": {func(w *Watchdog) { w.Step("an import") },
			once(5, func(w *Watchdog) { _, _ = io.ReadAll(w.Reader(strings.NewReader("content"))) }), 5 + looks},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := New(time.Minute)
			c.begin(w)
			for look := 1; look <= 100; look++ {
				c.before(w, look)
				err := w.Look()
				if hung := new(HungError); errors.As(err, &hung) != (look == c.hangs) {
					t.Fatalf("look %d: %v, want a hung loop at look %d", look, err, c.hangs)
				}
				if err != nil {
					return
				}
			}
		})
	}
}

func every(n int, do func(*Watchdog)) func(*Watchdog, int) {
	return func(w *Watchdog, look int) {
		if look%n == 0 {
			do(w)
		}
	}
}

func once(at int, do func(*Watchdog)) func(*Watchdog, int) {
	return func(w *Watchdog, look int) {
		if look == at {
			do(w)
		}
	}
}

func TestWatchEndsWithALoopThatHangs(t *testing.T) {
	clk, w := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), New(10*time.Minute)
	w.Step("the load of %s", "gadget")
	ended := make(chan error, 1)
	go func() { ended <- w.Watch(t.Context(), clk) }()
	for {
		select {
		case err := <-ended:
			const want = "the agent has made no progress for 10m0s in this step: the load of gadget"
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
			if past := clk.Since(time.Unix(1_800_000_000, 0)); past < 10*time.Minute {
				t.Errorf("it had only %s", past)
			}
			return
		default:
			clk.Step(time.Minute)
		}
	}
}

// TestWatchEndsWithItsContext: after a signal to end, the kubelet waits no longer than the pod's
// grace period.
func TestWatchEndsWithItsContext(t *testing.T) {
	w := New(10 * time.Minute)
	w.Step("a load")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Watch(ctx, clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))); err != nil {
		t.Error(err)
	}
}

// TestNobodyWatches: hollow nodes have no Watchdog.
func TestNobodyWatches(t *testing.T) {
	var w *Watchdog
	w.Step("a load")
	w.Alive()
	w.Rest()
	if data, err := io.ReadAll(w.Reader(strings.NewReader("content"))); string(data) != "content" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}
