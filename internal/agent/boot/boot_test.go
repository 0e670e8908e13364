// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/internal/agent/statefile"
)

// life is one static pod.
type life struct {
	t     *testing.T
	o     Options
	clock *clocktesting.FakeClock
	// worked is closed when work has begun; endWork ends it.
	worked, endWork chan struct{}
	stops           int
	cancel          func()
	ended           chan error
}

func newLife(t *testing.T, given func(state, manifests string)) *life {
	t.Helper()
	l := &life{t: t, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), worked: make(chan struct{}), endWork: make(chan struct{}),
		ended: make(chan error, 1)}
	l.o = Options{
		StateDir: t.TempDir(), ManifestDir: t.TempDir(), Clock: l.clock, Stopped: func() error { l.stops++; return nil },
		Work: func(ctx context.Context) error {
			close(l.worked)
			select {
			case <-ctx.Done():
			case <-l.endWork:
			}
			return nil
		},
	}
	if err := Enable(t.Context(), podOptions(l.o.StateDir, l.o.ManifestDir)); err != nil {
		t.Fatal(err)
	}
	if given != nil {
		given(l.o.StateDir, l.o.ManifestDir)
	}
	return l
}

func (l *life) start() {
	_, ctx := ktesting.NewTestContext(l.t)
	ctx, l.cancel = context.WithCancel(ctx)
	l.t.Cleanup(l.cancel)
	go func() { l.ended <- Run(ctx, l.o) }()
}

func (l *life) end() {
	l.t.Helper()
	l.cancel()
	if err := <-l.ended; err != nil {
		l.t.Errorf("it ended with %v", err)
	}
}

// until steps the clock until something holds.
func (l *life) until(what string, ok func() bool) {
	l.t.Helper()
	err := wait.PollUntilContextTimeout(l.t.Context(), time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		l.clock.Step(wantedPoll)
		return ok(), nil
	})
	if err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
}

// free tells whether nobody has the lock.
func (l *life) free() bool {
	l.t.Helper()
	lock, err := TryTake(l.o.StateDir, "the test")
	if err != nil {
		l.t.Fatal(err)
	}
	if lock == nil {
		return false
	}
	if err := lock.Release(); err != nil {
		l.t.Fatal(err)
	}
	return true
}

func (l *life) manifest() bool {
	_, err := os.Stat(filepath.Join(l.o.ManifestDir, ManifestFile))
	return err == nil
}

func (l *life) hasWorked() bool {
	select {
	case <-l.worked:
		return true
	default:
		return false
	}
}

func TestWorksAndSleeps(t *testing.T) {
	l := newLife(t, nil)
	l.start()
	<-l.worked
	if l.free() {
		t.Error("it works without the lock")
	}
	close(l.endWork)
	l.until("the lock is given back", l.free)
	l.end()
	if !l.manifest() || l.stops != 1 {
		t.Errorf("manifest %v, stops %d: an orderly end has to be noted", l.manifest(), l.stops)
	}
}

func TestGivesWayToOneThatWaits(t *testing.T) {
	l := newLife(t, nil)
	l.start()
	<-l.worked
	got := make(chan *Lock, 1)
	go func() {
		lock, err := Take(t.Context(), l.o.StateDir, "the DaemonSet's agent", clock.RealClock{})
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	var lock *Lock
	l.until("the lock changes hands", func() bool {
		select {
		case lock = <-got:
			return true
		default:
			return false
		}
	})
	l.end()
	if l.stops != 0 {
		t.Error("the stop was noted although another agent works")
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// TestDoesNothing: in each case there is nothing for it to do, or somebody else to do it.
func TestDoesNothing(t *testing.T) {
	cases := map[string]struct {
		given   func(t *testing.T, state string)
		leaves  bool
		noStops bool
	}{
		"the option is off": {given: func(t *testing.T, state string) {
			t.Helper()
			if err := Disable(state); err != nil {
				t.Fatal(err)
			}
		}, leaves: true},
		"the option's file is damaged": {given: func(t *testing.T, state string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(state, consentFile), []byte(`{"schema":1,"sha256":"","content":{}}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}, leaves: true},
		"another agent works": {given: func(t *testing.T, state string) {
			t.Helper()
			lock, err := Take(t.Context(), state, "the DaemonSet's agent", clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lock.Release() })
		}, noStops: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, func(state, _ string) { c.given(t, state) })
			l.start()
			l.until("it sleeps", func() bool { return l.clock.HasWaiters() && l.manifest() != c.leaves })
			l.end()
			if l.hasWorked() || (l.stops == 0) != c.noStops {
				t.Errorf("worked %v, stops %d", l.hasWorked(), l.stops)
			}
		})
	}
}

// TestLeavesWhenTheOptionGoes while it sleeps.
func TestLeavesWhenTheOptionGoes(t *testing.T) {
	l := newLife(t, nil)
	close(l.endWork)
	l.start()
	l.until("the lock is given back", func() bool { return l.hasWorked() && l.free() })
	if !l.manifest() {
		t.Fatal("it left too early")
	}
	if err := Disable(l.o.StateDir); err != nil {
		t.Fatal(err)
	}
	l.until("the manifest goes", func() bool { return !l.manifest() })
	l.end()
}

// TestWorkThatFails is left to the DaemonSet's agent.
func TestWorkThatFails(t *testing.T) {
	l := newLife(t, nil)
	l.o.Work = func(context.Context) error { close(l.worked); return errors.New("no") }
	l.start()
	l.until("the lock is given back", func() bool { return l.hasWorked() && l.free() })
	l.end()
	if found, err := statefile.Read(l.o.StateDir, consentFile, consentSchema, &consent{}); !found || err != nil {
		t.Errorf("the option is gone: %v", err)
	}
}
