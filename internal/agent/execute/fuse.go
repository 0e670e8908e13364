// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
)

func fuseBuild(s plan.Step) fuse.Build {
	id := s.BuildID
	if id == "" {
		id = "sha256:" + s.Content
	}
	return fuse.Build{Module: s.Name, BuildID: id}
}

// TendFuse judges what the last boot left open and closes loads that have ended, before anything is
// loaded. It returns when to look again; zero: no such time.
func (e *Executor) TendFuse(ctx context.Context) (time.Time, error) {
	if e.Fuse == nil {
		return time.Time{}, nil
	}
	now := e.Clock.Now()
	if e.judged != e.BootID {
		if err := e.judge(ctx); err != nil {
			return time.Time{}, err
		}
		e.judged = e.BootID
	}
	present, err := e.Kernel.Present()
	if err != nil {
		return time.Time{}, err
	}
	// Loads are made one by one, and none now: one that is open was left behind. A modprobe that
	// hangs at one module may still load the next.
	running := e.Modprobe != nil && e.Modprobe.ModprobeRunning()
	for _, s := range e.Fuse.List(now) {
		state, there := present[s.Build.Module]
		if !s.Loading || state == host.StateComing || !there && running {
			continue
		}
		if err := e.Fuse.Done(s.Build, state == host.StateLive, now); err != nil {
			return time.Time{}, fmt.Errorf("close a load: %w", err)
		}
	}
	return e.SettleFuse(now)
}

// SettleFuse counts loads as good that stayed live for long. It returns when the next one has.
func (e *Executor) SettleFuse(now time.Time) (time.Time, error) {
	if e.Fuse == nil {
		return time.Time{}, nil
	}
	next, err := e.Fuse.Settle(now)
	return next, wrap(err, "settle loads")
}

// judge tells the fuse of a boot, with what the kernel left to say about the end of the last one.
func (e *Executor) judge(ctx context.Context) error {
	dumps, err := e.Host.Dumps()
	if err != nil {
		// Without them there is less evidence, and strikes still count.
		klog.FromContext(ctx).Error(err, "Cannot read the kernel's dumps of the last boot")
	}
	var evidence []fuse.Evidence
	for _, d := range dumps {
		for _, module := range fuse.Culprits(d.Text) {
			evidence = append(evidence, fuse.Evidence{Module: module, At: d.Time})
		}
	}
	verdicts, err := e.Fuse.Boot(e.BootID, evidence, e.Clock.Now())
	if err != nil {
		return fmt.Errorf("judge the last boot: %w", err)
	}
	for _, v := range verdicts {
		klog.FromContext(ctx).Info("The last boot, or agent, ended while a module was being loaded", "build", v.Build.String(),
			"outcome", v.Outcome, "strikes", v.Strikes, "evidence", v.Evidence)
	}
	return nil
}

func (e *Executor) openFuse(s plan.Step) error {
	if e.Fuse == nil {
		return nil
	}
	return wrap(e.Fuse.Intent(fuseBuild(s), e.Clock.Now()), "note the load of %s", s.Name)
}

func (e *Executor) closeFuse(s plan.Step, live bool) error {
	return wrap(e.Fuse.Done(fuseBuild(s), live, e.Clock.Now()), "note the end of the load of %s", s.Name)
}

func (e *Executor) closeFuses(steps []plan.Step) error {
	if e.Fuse == nil || len(steps) == 0 {
		return nil
	}
	present, err := e.Kernel.Present()
	if err != nil {
		return err
	}
	for _, s := range steps {
		if err := e.closeFuse(s, present[s.Name] == host.StateLive); err != nil {
			return err
		}
	}
	return nil
}

// blameOops keeps a build out whose load made the kernel oops: in the next boot it would, too.
func (e *Executor) blameOops(ctx context.Context, loads []plan.Step, failed error) error {
	died, ok := errors.AsType[*host.DiedError](failed)
	if e.Fuse == nil || !ok {
		return nil
	}
	culprits := fuse.Culprits(died.Log)
	for _, s := range loads {
		if !slices.Contains(culprits, s.Name) {
			continue
		}
		klog.FromContext(ctx).Info("The kernel oopsed in a load", "build", fuseBuild(s).String())
		if err := e.Fuse.Blame(fuseBuild(s), e.Clock.Now()); err != nil {
			return fmt.Errorf("note the oops: %w", err)
		}
	}
	return nil
}

// hold says why the fuse keeps a part of the plan from being loaded.
func (e *Executor) hold(f observe.Facts) (*orders.Attempt, error) {
	if e.Fuse == nil || f.Plan == nil {
		return nil, nil
	}
	for _, s := range f.Plan.Steps {
		if m, live := f.Live[s.Name]; live && s.Is(m) {
			continue
		}
		hold, ok := e.Fuse.Allowed(fuseBuild(s), f.Now)
		if ok || s.Optional && f.Plan.Modprobe == nil { // modprobe cannot leave it out
			continue
		}
		if excused, err := e.excuse(f, fuseBuild(s)); err != nil {
			return nil, err
		} else if excused {
			if hold, ok = e.Fuse.Allowed(fuseBuild(s), f.Now); ok {
				continue
			}
		}
		if !hold.Quarantined && hold.Until.IsZero() {
			return orders.Waiting(v1beta1.ReasonTimeout, "Not loaded: %v.", hold), nil
		}
		a := orders.Waiting(v1beta1.ReasonQuarantined,
			"Not loaded: %v. Look at the node's console and pstore; another build may be loaded at once.", hold)
		if hold.Quarantined {
			a.State = v1beta1.AttemptFailed
		}
		a.Next = hold.Until
		a.Strike, a.Strikes = e.strike(f, fuseBuild(s))
		return a, nil
	}
	return nil, nil
}

// strike is what the fuse has against a build, for the operator; nil: a load has not returned.
func (e *Executor) strike(f observe.Facts, b fuse.Build) (*v1beta1.Strike, int32) {
	for _, s := range e.Fuse.List(f.Now) {
		began := s.Began
		if began.IsZero() && !s.Quarantined.IsZero() {
			began = s.Quarantined.Add(-fuse.QuarantineFor)
		}
		if s.Build != b || began.IsZero() {
			continue
		}
		at := metav1.NewTime(began.UTC()).Rfc3339Copy()
		excused := f.Order != nil && f.Order.Excused != nil && !at.After(f.Order.Excused.Time)
		return &v1beta1.Strike{
			Delivery: orders.DeliveryID(f.Order), Build: b.String(), Began: at, Evidence: s.Evidence, Kept: excused && !s.Evidence,
			Retry: e.Retried.Of(f.Key),
		}, int32(min(s.Strikes, math.MaxInt32)) //nolint:gosec // bounded
	}
	return nil, 0
}

// excuse takes a strike back for which the operator found a cause outside. It tells whether it did.
func (e *Executor) excuse(f observe.Facts, b fuse.Build) (bool, error) {
	strike, _ := e.strike(f, b)
	if strike == nil || !strike.Kept {
		return false, nil
	}
	done, err := e.Fuse.Excuse(b, f.Now)
	return done, wrap(err, "excuse %s", b)
}
