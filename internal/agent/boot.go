// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/modprobe"
)

// Boot brings in what the record orders, without an API server, and unloads nothing. It returns when nothing is left to do, failures
// to try again and loads to watch included, or when ctx ends, after the step it is in. It reports to nobody but the log.
func (a *Agent) Boot(ctx context.Context) error {
	a.o.Host = loadsOnly{a.o.Host}
	if a.o.Modprobe != nil {
		a.o.Modprobe = probesOnly{program: a.o.Modprobe}
	}
	a.confess(ctx)
	if a.recorded == nil {
		klog.FromContext(ctx).Info("There is no record to work from")
		return nil
	}
	spec := a.recorded.forBoot(a.o.Host.Release())
	for {
		next, err := a.bootOnce(ctx, spec)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			klog.FromContext(ctx).Error(err, "Cannot bring in all that is recorded")
			next = a.o.Clock.Now().Add(brokenPause)
		case next.IsZero():
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.o.Clock.After(max(next.Sub(a.o.Clock.Now()), minimalPause)):
		}
	}
}

// bootOnce takes each order as far as it goes, and returns when there is more to do; zero: never.
func (a *Agent) bootOnce(ctx context.Context, spec v1beta1.NodeModulesConfigSpec) (time.Time, error) {
	p, err := a.newPass(spec)
	if err != nil {
		return time.Time{}, err
	}
	outcomes, err := p.settle(ctx)
	if err != nil || ctx.Err() != nil {
		return time.Time{}, err
	}
	a.bootReport(ctx, outcomes)
	if p.o.Fuse != nil { // a load has to stay live for a while: somebody must see that it did
		settled, err := p.o.Fuse.Settle(a.o.Clock.Now())
		if err != nil {
			return time.Time{}, fmt.Errorf("settle loads: %w", err)
		}
		p.wakeAt(decision{wake: settled})
	}
	return p.wake, nil
}

// bootReport logs what the status would say.
func (a *Agent) bootReport(ctx context.Context, outcomes map[key]outcome) {
	for k, o := range outcomes {
		switch {
		case o.unusable:
			klog.FromContext(ctx).Info("Loaded", "module", k.String(), "name", o.loaded.Main, "reason", v1beta1.ReasonNotUsable, "message", o.report.Message)
		case o.report != nil:
			klog.FromContext(ctx).Info("Not loaded", "module", k.String(), "state", o.report.State, "reason", o.report.Reason, "message", o.report.Message)
		case o.live:
			klog.FromContext(ctx).Info("Loaded", "module", k.String(), "name", o.loaded.Main)
		default:
			klog.FromContext(ctx).Info("Not loaded", "module", k.String(), "reason", v1beta1.ReasonAwaitingDelivery)
		}
	}
}

// errLoadsOnly says who unloads.
var errLoadsOnly = errors.New("an agent without an API server unloads nothing; the DaemonSet's will")

// loadsOnly is a host on which nothing is unloaded, whatever for.
type loadsOnly struct{ host.Host }

// Unload refuses.
func (loadsOnly) Unload(_ context.Context, r host.UnloadRequest) error {
	return fmt.Errorf("%s: %w", r.Name, errLoadsOnly)
}

// probesOnly is modprobe, but for command lines that remove.
type probesOnly struct{ program Modprobe }

// ModprobeRunning is the program's answer.
func (p probesOnly) ModprobeRunning() bool { return p.program.ModprobeRunning() }

// Modprobe refuses to remove.
func (p probesOnly) Modprobe(ctx context.Context, r host.ModprobeRequest) error {
	if modprobe.Parse(r.Args).Remove {
		return fmt.Errorf("modprobe: %w", errLoadsOnly)
	}
	return p.program.Modprobe(ctx, r)
}
