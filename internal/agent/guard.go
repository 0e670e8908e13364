// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
)

// burns is the step's build as the fuse knows it.
func (s planStep) burns() fuse.Build {
	id := s.BuildID
	if id == "" {
		id = "sha256:" + s.Content
	}
	return fuse.Build{Module: s.Name, BuildID: id}
}

// mindFuse keeps the fuse's books before anything is loaded: what the last boot left open is judged, what is on its way no more is closed.
func (p *pass) mindFuse(ctx context.Context) error {
	if p.o.Fuse == nil {
		return nil
	}
	now := p.o.Clock.Now()
	if p.judged != p.bootID {
		if err := p.judge(ctx); err != nil {
			return err
		}
		p.judged = p.bootID
	}
	if _, err := p.see(nil); err != nil {
		return err
	}
	// Loads are made one after another, and none is being made now: one that is still open has been left behind, by this agent or the last.
	// A modprobe that hangs at one module may still load the next.
	running := p.o.Modprobe != nil && p.o.Modprobe.ModprobeRunning()
	for _, s := range p.o.Fuse.List(now) {
		state, present := p.present[s.Build.Module]
		if !s.Loading || state == host.StateComing || !present && running {
			continue
		}
		if err := p.o.Fuse.Done(s.Build, state == host.StateLive, now); err != nil {
			return fmt.Errorf("close a load: %w", err)
		}
	}
	next, err := p.o.Fuse.Settle(now)
	if err != nil {
		return fmt.Errorf("settle loads: %w", err)
	}
	if !next.IsZero() {
		p.wakeAt(decision{wake: next})
	}
	return nil
}

// judge tells the fuse of a boot, with what the kernel left to say about the end of the last one.
func (p *pass) judge(ctx context.Context) error {
	dumps, err := p.o.Host.Dumps()
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
	verdicts, err := p.o.Fuse.Boot(p.bootID, evidence, p.o.Clock.Now())
	if err != nil {
		return fmt.Errorf("judge the last boot: %w", err)
	}
	for _, v := range verdicts {
		klog.FromContext(ctx).Info("The last boot, or agent, ended while a module was being loaded", "build", v.Build.String(),
			"outcome", v.Outcome, "strikes", v.Strikes, "evidence", v.Evidence)
	}
	return nil
}

// blame keeps a build out whose load made the kernel oops: the kernel of this boot says so, and the next one would oops as well.
func (p *pass) blame(ctx context.Context, loads []planStep, failed error) error {
	var died *host.DiedError
	if p.o.Fuse == nil || !errors.As(failed, &died) {
		return nil
	}
	culprits := fuse.Culprits(died.Log)
	for _, s := range loads {
		if !slices.Contains(culprits, s.Name) {
			continue
		}
		klog.FromContext(ctx).Info("The kernel oopsed in a load", "build", s.burns().String())
		if err := p.o.Fuse.Blame(s.burns(), p.o.Clock.Now()); err != nil {
			return fmt.Errorf("note the oops: %w", err)
		}
	}
	return nil
}

// held says why the fuse keeps a part of the plan from being loaded.
func (p *pass) heldBack(f facts) (*report, error) {
	if p.o.Fuse == nil || f.plan == nil {
		return nil, nil
	}
	for _, s := range f.plan.Steps {
		if m, live := f.live[s.Name]; live && s.is(m) {
			continue
		}
		hold, ok := p.o.Fuse.Allowed(s.burns(), f.now)
		if ok || s.Optional && f.plan.modprobe == nil { // modprobe cannot leave it out
			continue
		}
		if excused, err := p.excuse(f, s.burns()); err != nil {
			return nil, err
		} else if excused {
			if hold, ok = p.o.Fuse.Allowed(s.burns(), f.now); ok {
				continue
			}
		}
		r := &report{
			State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonQuarantined, Next: hold.Until,
			Message: fmt.Sprintf("Not loaded: %v. Look at the node's console and pstore; another build may be loaded at once.", hold),
		}
		switch {
		case hold.Quarantined:
			r.State = v1beta1.AttemptFailed
		case hold.Until.IsZero():
			r.Reason, r.Message = v1beta1.ReasonTimeout, fmt.Sprintf("Not loaded: %v.", hold)
			return r, nil
		}
		r.Strike, r.Strikes = p.strike(f, s.burns())
		return r, nil
	}
	return nil, nil
}
