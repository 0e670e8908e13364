// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// What is waited for has at least half of the time to itself, however long a look takes.
func TestALookWaitsAsLongAsItTook(t *testing.T) {
	const long = 20 * time.Millisecond
	var ended time.Time
	looks := 0
	err := repeat(t.Context(), time.Minute, time.Nanosecond, func(context.Context) bool {
		if since := time.Since(ended); looks > 0 && since < long {
			t.Errorf("look %d begins %s after one that took %s", looks, since, long)
		}
		looks++
		for began := time.Now(); time.Since(began) < long; {
			continue // it takes the processor
		}
		ended = time.Now()
		return looks == 4
	})
	if err != nil || looks != 4 {
		t.Errorf("%d looks, %v", looks, err)
	}
}

func TestEventually(t *testing.T) {
	t.Setenv("TRACE", "")
	s := &Suite{Patience: 50 * time.Millisecond}
	missing := errors.New("no such pod")
	if err := s.Eventually(t.Context(), "a pod", func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	err := s.Eventually(t.Context(), "a pod", func(context.Context) error { return missing })
	if !errors.Is(err, missing) || !strings.Contains(err.Error(), "a pod, within 50ms") {
		t.Errorf("error %v", err)
	}
	// A look that ends with its time says nothing of what was wrong.
	first := true
	err = s.Eventually(t.Context(), "a pod", func(ctx context.Context) error {
		if first {
			first = false
			return missing
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, missing) {
		t.Errorf("error %v", err)
	}
}

func TestThroughout(t *testing.T) {
	s := &Suite{}
	if err := s.Throughout(t.Context(), 50*time.Millisecond, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	err := s.Throughout(t.Context(), 50*time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		t.Errorf("a look that the end of the time ended: %v", err)
	}
	broken := errors.New("unloaded")
	if err := s.Throughout(t.Context(), time.Minute, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Throughout(ended, time.Minute, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
