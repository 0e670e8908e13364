// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"slices"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
	"github.com/drover-project/drover/internal/agent/report"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

// Unload takes out what is ours, last loaded first. A dependency that is in use by now may stay.
func (e *Executor) Unload(ctx context.Context, f observe.Facts) error {
	if orders.Present(e.Orders[f.Key]) {
		// What is to come in its place has to be noted. On a full disk, what is loaded stays.
		if err := e.Journal.Write(); err != nil {
			return err
		}
	}
	if a, err := e.ask(ctx, f, f.OursLive()); a != nil || err != nil {
		if a != nil {
			e.fail(ctx, f, orderhash.Of(f.Order), a)
		}
		return err
	}
	f, done, err := e.unloadByModprobe(ctx, f)
	if done || err != nil {
		return err
	}
	beforeMain := false // walking backwards: true once only dependencies of the main module are left
	for _, m := range f.OursLive() {
		if m.Name != f.Loaded.Main && !beforeMain {
			_, live := f.Live[f.Loaded.Main]
			beforeMain = !live
		}
		if e.Ending() {
			return nil // what is left is still ours in the journal
		}
		klog.FromContext(ctx).Info("Unloading", "module", f.Key.String(), "name", m.Name, "buildID", m.BuildID)
		err := e.remove(ctx, f.Key, m.Name)
		switch {
		case err == nil, errors.Is(err, host.Errno("ENOENT")):
		case beforeMain && report.Busy(err):
		default:
			a, seen := e.unloadFailed(err, m.Name)
			if seen != nil {
				return seen
			}
			e.fail(ctx, f, orderhash.Of(f.Order), a)
			return e.restore(ctx, f)
		}
		beforeMain = beforeMain || m.Name == f.Loaded.Main
	}
	return e.Forget(ctx, f.Key)
}

func (e *Executor) remove(ctx context.Context, k orders.Key, name string) error {
	e.Watchdog.Step("the unload of %s for %s", name, k)
	err := e.Host.Unload(ctx, host.UnloadRequest{Name: name, For: k.String()})
	e.Watchdog.Step("what follows the unload of %s for %s", name, k)
	e.Kernel.Changed()
	if err == nil {
		delete(e.stuck, name)
	}
	return err
}

func (e *Executor) unloadFailed(refused error, name string) (*orders.Attempt, error) {
	now, err := e.Kernel.See(name)
	if err != nil {
		return nil, err
	}
	m, by := now[name], report.Usage{}
	m.Name = name
	if report.Busy(refused) {
		by.Users, by.Err = e.Host.Users(name)
		e.learn(refused, m)
	}
	return report.UnloadFailed(refused, m, by), nil
}

// Forget ends an order's hold on the kernel. What another order counts on passes to that.
func (e *Executor) Forget(ctx context.Context, k orders.Key) error {
	for _, m := range e.Journal.Loaded[k].Modules {
		if m.Ours {
			e.passOn(k, m.Name)
		}
	}
	reload := orders.Present(e.Orders[k])
	if err := e.releaseFirmware(k, e.Journal.Loaded[k], reload); err != nil {
		return err
	}
	delete(e.failures, orders.Task{Key: k})
	delete(e.failures, orders.Task{Key: k, Previous: true})
	if !reload {
		delete(e.Journal.Worked, k)
	}
	if err := e.drop(k); err != nil {
		return err
	}
	if reload {
		e.reloading[k] = true
		return nil // what was replaced stays so
	}
	return e.PutBack(ctx, k)
}

// Close ends an order to unload of which nothing is loaded, since it was carried out or the node
// has booted: what it replaced is put back, and nothing goes back to an earlier form of it.
func (e *Executor) Close(ctx context.Context, k orders.Key) error {
	if err := e.PutBack(ctx, k); err != nil {
		return err
	}
	w, ok := e.Journal.Worked[k]
	if !ok {
		return nil
	}
	delete(e.Journal.Worked, k)
	err := e.Journal.Write()
	if err != nil {
		e.Journal.Worked[k] = w
	}
	return err
}

// passOn makes a module ours for the other orders that count on it.
func (e *Executor) passOn(k orders.Key, name string) {
	for other, l := range e.Journal.Loaded {
		for i := range l.Modules {
			if other != k && l.Modules[i].Name == name {
				l.Modules[i].Ours = true
			}
		}
	}
}

// drop forgets a load. One that the disk still names is forgotten again.
func (e *Executor) drop(k orders.Key) error {
	l, had := e.Journal.Loaded[k]
	delete(e.Journal.Loaded, k)
	err := e.Journal.Write()
	if err != nil && had {
		e.Journal.Loaded[k] = l
	}
	return err
}

// refused ends a load that the kernel has refused at a step.
func (e *Executor) refused(ctx context.Context, f observe.Facts, s plan.Step, inserted []plan.Step, err error) error {
	var settable []string
	if s.Name == f.Plan.Main {
		for _, p := range s.Params {
			settable = append(settable, p.Name)
		}
	}
	a := report.LoadFailed(err, settable)
	known := journal.Refusal{Delivery: orders.DeliveryID(f.Order)}
	if a.Reason == v1beta1.ReasonUnknownSymbol {
		dependency, live, seeErr := e.misfit(f, s)
		if seeErr != nil {
			return seeErr
		}
		if live != "" {
			a, known.Against = report.DependencyConflict(err, s, dependency, live), dependency.Name+" "+live
		}
	}
	e.fail(ctx, f, orderhash.Of(f.Order), a)
	if errors.Is(err, host.ErrTimeout) {
		return nil // the module may still arrive; the journal names it
	}
	e.giveUp(f, a)
	if err := e.rollBack(ctx, f, inserted); err != nil {
		return err
	}
	if known.Among, err = e.Kernel.Among(); err != nil {
		return err
	}
	if !e.Journal.Refuse(s.Build(), *a, known) {
		return nil
	}
	return e.Journal.Write()
}

// misfit finds the module that a refused step needs and of which another build is live than the
// plan has; live is that build, empty: none. Only asked when a symbol or CRC does not fit: another
// build that fits is taken as it is.
func (e *Executor) misfit(f observe.Facts, refused plan.Step) (dependency plan.Step, live string, err error) {
	needs := slices.Clone(refused.Needs)
	for _, name := range f.Order.Config.Modprobe.ModulesLoadingOrder {
		needs = append(needs, kmod.NormalizeName(name))
	}
	for _, s := range f.Plan.Steps {
		if s.Name == refused.Name || s.Optional || s.BuildID == "" || !slices.Contains(needs, s.Name) {
			continue
		}
		now, err := e.Kernel.See(s.Name)
		if err != nil {
			return plan.Step{}, "", err
		}
		if id := orders.IdentityOf(now[s.Name]); id != "" && id != s.BuildID {
			return s, id, nil
		}
	}
	return plan.Step{}, "", nil
}

// giveUp remembers that an order failed where a previous one can be brought back.
func (e *Executor) giveUp(f observe.Facts, a *orders.Attempt) {
	if f.MayFallBack() {
		e.Journal.RollBack(f.Key, orderhash.Of(f.Order), *a, e.Clock.Now())
	}
}

// rollBack takes out what a failed load has put in. What cannot go stays in the journal as ours.
func (e *Executor) rollBack(ctx context.Context, f observe.Facts, inserted []plan.Step) error {
	for _, s := range slices.Backward(inserted) {
		if err := e.remove(ctx, f.Key, s.Name); err != nil {
			break // somebody uses it by now
		}
	}
	left, err := e.lookAgain(f)
	if err != nil || len(left.OursLive()) > 0 {
		return err
	}
	if err := e.releaseFirmware(f.Key, left.Loaded, false); err != nil {
		return err
	}
	if err := e.drop(f.Key); err != nil {
		return err
	}
	if f.MayFallBack() {
		return nil // what was replaced stays so for the previous one
	}
	return e.PutBack(ctx, f.Key)
}
