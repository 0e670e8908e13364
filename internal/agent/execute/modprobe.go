// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

func (e *Executor) runModprobe(ctx context.Context, p *plan.Plan, k orders.Key, c v1beta1.ModprobeSpec) error {
	r := p.Request(k, c)
	klog.FromContext(ctx).Info("Running modprobe", "module", k.String(), "args", r.Args)
	e.Watchdog.Step("the run of modprobe for %s", k)
	err := e.Modprobe.Modprobe(ctx, r)
	e.Watchdog.Step("what follows the run of modprobe for %s", k)
	e.Kernel.Changed()
	return err
}

// loadByModprobe lets modprobe load a plan, whose intent is noted, and looks what came of it.
func (e *Executor) loadByModprobe(ctx context.Context, f observe.Facts, l *journal.Load, adopted bool) error {
	var open []plan.Step
	for _, s := range f.Plan.Steps {
		if _, live := f.Live[s.Name]; live {
			continue
		}
		if err := e.openFuse(s); err != nil {
			return errors.Join(err, e.closeFuses(open))
		}
		open = append(open, s)
	}
	failed := e.runModprobe(ctx, f.Plan, f.Key, f.Order.Config.Modprobe)
	if errors.Is(failed, host.ErrTimeout) {
		return e.refused(ctx, f, f.Plan.MainStep(), nil, failed) // the modules may still arrive; the journal names them
	}
	if err := errors.Join(e.closeFuses(open), e.blameOops(ctx, open, failed)); err != nil {
		return err
	}
	if errors.Is(failed, host.ErrNotMade) {
		return failed // the next pass tries again
	}
	came, err := e.came(open)
	if err != nil {
		return err
	}
	if failed != nil {
		return e.refused(ctx, f, f.Plan.Blamed(failed), came, failed)
	}
	f.Plan, err = e.settleMain(f.Plan, l)
	if err != nil {
		return err
	}
	if f.Plan.Main == "" {
		e.fail(ctx, f, orderhash.Of(f.Order), orders.Failed(v1beta1.ReasonLoadFailed,
			"modprobe ended without an error, but no module of the image came into the kernel; see what modprobe.rawArgs.load names."))
		return e.rollBack(ctx, f, came)
	}
	return e.verify(ctx, f, l, came, adopted && len(came) == 0)
}

func (e *Executor) came(steps []plan.Step) ([]plan.Step, error) {
	var came []plan.Step
	for _, s := range steps {
		live, err := e.Kernel.See(s.Name)
		if err != nil {
			return nil, err
		}
		if m, ok := live[s.Name]; ok && s.Is(m) {
			came = append(came, s)
		}
	}
	return came, nil
}

// settleMain drops from the load what did not come. Where the command line does not tell the main
// module, it is the topmost that came.
func (e *Executor) settleMain(p *plan.Plan, l *journal.Load) (*plan.Plan, error) {
	settled := *p
	settled.Steps = nil
	for _, s := range p.Steps {
		live, err := e.Kernel.See(s.Name)
		if err != nil {
			return nil, err
		}
		m, ok := live[s.Name]
		if !ok && (s.Optional || s.Name != p.Main) {
			l.Drop(s.Name)
			continue
		}
		settled.Steps = append(settled.Steps, s)
		if entry, _ := l.Module(s.Name); p.Main == "" && entry.Ours && s.Is(m) {
			settled.Main = s.Name // in load order: the last one is the topmost
		}
	}
	l.Main = settled.Main
	return &settled, nil
}

// unloadByModprobe lets modprobe unload what it has loaded, and returns the facts anew: the rest is
// for Unload. done: there is no rest for now. It is not asked where another order needs one of the
// modules: it removes what nobody uses.
func (e *Executor) unloadByModprobe(ctx context.Context, f observe.Facts) (now observe.Facts, done bool, err error) {
	needed := func(name string) bool {
		_, ok := e.Journal.NeededBy(f.Key, name)
		return ok
	}
	c := f.Loaded.Config.Modprobe
	if e.Modprobe == nil || !modprobe.Wanted(&c) || modprobe.Strays(modprobe.UnloadArgs(&c)) != "" ||
		slices.ContainsFunc(f.Loaded.Modules, func(m journal.Module) bool { return needed(m.Name) }) {
		return f, false, nil
	}
	tree, err := e.Store.Open(f.Loaded.DeliveryID)
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil // damaged and dropped: the agent unloads by itself
	}
	if err != nil {
		return f, false, fmt.Errorf("open delivery: %w", err)
	}
	away, err := plan.ImageOnly(tree, e.Host.Release(), modprobe.UnloadArgs(&c))
	if err != nil {
		return f, false, err
	}
	failed := e.runModprobe(ctx, away, f.Key, c)
	if now, err = e.lookAgain(f); err != nil {
		return f, false, err
	}
	var a *orders.Attempt
	switch main := f.Loaded.Main; {
	case failed != nil:
		name := main
		if call, ok := errors.AsType[*host.CallError](failed); ok && now.Live[call.Module].Name != "" {
			name = call.Module
		}
		a, err = e.unloadFailed(failed, name)
	case now.MainLive() && !needed(main):
		a = orders.Failed(v1beta1.ReasonUnloadFailed,
			"modprobe ended without an error, but %s is still in the kernel; see modprobe.args.unload and modprobe.rawArgs.unload.", main)
	}
	if a != nil {
		e.fail(ctx, f, orderhash.Of(f.Order), a)
	}
	return now, a != nil, err
}
