// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
	"github.com/drover-project/drover/internal/agent/report"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

// Load brings the plan into the kernel. The intent is on disk before the first call: whoever comes
// after a kill finds it and goes on.
func (e *Executor) Load(ctx context.Context, f observe.Facts, drifted bool) error {
	l := e.intent(f)
	if drifted {
		l.Repairs, l.LastRepair = l.Repairs+1, new(e.now())
	}
	e.Journal.Loaded[f.Key] = l
	if err := e.Journal.Write(); err != nil {
		return err
	}
	if drifted {
		e.fail(ctx, f, orderhash.Of(f.Order), report.Drifted(l))
	}
	if f.Plan.BuiltIn {
		return e.complete(f, l, v1beta1.ObservedModule{BuiltIn: true})
	}
	a, err := e.prepare(ctx, f)
	if err != nil {
		return err
	}
	if a != nil {
		e.fail(ctx, f, orderhash.Of(f.Order), a)
		if e.reloading[f.Key] {
			e.giveUp(f, a)
		}
		return e.rollBack(ctx, f, nil)
	}
	_, adopted := f.Live[l.Main]
	if !adopted {
		l.Began = e.now() // what was replaced is gone by now
	}
	adopted = adopted && !e.Journal.OursByOther(f.Key, l.Main)
	if f.Plan.Modprobe != nil {
		return e.loadByModprobe(ctx, f, l, adopted)
	}
	return e.insertAll(ctx, f, l, adopted)
}

// prepare makes room for the load and stages its firmware. An attempt says why that failed.
func (e *Executor) prepare(ctx context.Context, f observe.Facts) (*orders.Attempt, error) {
	if !e.reloading[f.Key] { // else it was asked before the unload
		if a, err := e.ask(ctx, f, nil); a != nil || err != nil {
			return a, err
		}
	}
	if a, err := e.makeRoom(ctx, f); a != nil || err != nil {
		return a, err
	}
	if f.Plan.Firmware == nil {
		return nil, nil
	}
	if err := e.Firmware.Add(f.Key.String(), f.Plan.Firmware); err != nil {
		return report.FirmwareFailed(err), nil
	}
	return nil, nil
}

// insertAll inserts what the kernel lacks, in order. adopted: the main module is live already.
func (e *Executor) insertAll(ctx context.Context, f observe.Facts, l *journal.Load, adopted bool) error {
	var inserted []plan.Step
	for _, s := range f.Plan.Steps {
		if m, ok := f.Live[s.Name]; ok && (s.Name != f.Plan.Main || s.Is(m)) {
			continue
		}
		if e.Ending() {
			return nil // the journal names what was begun; the next agent goes on
		}
		var parameters []string
		if s.Name == f.Plan.Main {
			parameters = f.Order.Config.Modprobe.Parameters
		}
		err, failed := e.insert(ctx, f.Key, s, parameters)
		if failed != nil {
			return failed // the journal names what was begun; the next pass goes on
		}
		if errors.Is(err, host.Errno("EEXIST")) && s.Name != f.Plan.Main {
			err = nil // a dependency that came meanwhile is taken as it is
		}
		if err != nil && s.Optional && !errors.Is(err, host.ErrTimeout) {
			klog.FromContext(ctx).Info("Going on without an optional module", "module", f.Key.String(), "name", s.Name, "why", err.Error())
			l.Drop(s.Name)
			continue
		}
		if err != nil {
			return e.refused(ctx, f, s, inserted, err)
		}
		inserted = append(inserted, s)
	}
	return e.verify(ctx, f, l, inserted, adopted && len(inserted) == 0)
}

// intent is the journal's entry for a load that is about to begin.
func (e *Executor) intent(f observe.Facts) *journal.Load {
	l := &journal.Load{
		Item: f.Order.ModuleItem, Config: f.Order.Config, DeliveryID: orders.DeliveryID(f.Order),
		BuiltIn: f.Plan.BuiltIn, Main: f.Plan.Main,
	}
	if f.SameLoad() {
		l.Repairs, l.LastRepair = f.Loaded.Repairs, f.Loaded.LastRepair
	}
	if !f.Plan.BuiltIn && !modprobe.Raw(&f.Order.Config.Modprobe) {
		l.Kinds = kinds(f.Plan.MainStep(), f.Order.Config.Modprobe.Parameters)
	}
	for _, s := range f.Plan.Steps {
		before, _ := f.Loaded.Module(s.Name)
		m, live := f.Live[s.Name]
		live = live && (!slices.Contains(f.InTree(), s.Name) || planned(f, m)) // another build leaves before the load
		if !live && s.Name == f.Plan.Main {
			l.Began = e.now()
		}
		id := s.BuildID
		if live && s.Name != f.Plan.Main {
			id = orders.IdentityOf(m) // a dependency that is there is taken as it is
		}
		l.Modules = append(l.Modules, journal.Module{
			Name: s.Name, BuildID: id, Planned: s.BuildID, Content: s.Content,
			Ours: !live || before.Ours || s.Name == f.Plan.Main || e.Journal.OursByOther(f.Key, s.Name),
		})
	}
	return l
}

// kinds are the types of those parameters that a module has.
func kinds(s plan.Step, ordered []string) map[string]string {
	found := map[string]string{}
	for _, p := range ordered {
		name := orders.ParameterName(p)
		for _, has := range s.Params {
			if kmod.NormalizeName(has.Name) == name {
				found[name] = has.Type
			}
		}
	}
	return found
}

// insert loads one module. A module that appeared meanwhile is as good when it is the same build.
// refusal is the kernel's; err says that the agent's own means failed, on a full disk for example,
// and says nothing about the build.
func (e *Executor) insert(ctx context.Context, k orders.Key, s plan.Step, parameters []string) (refusal, err error) {
	file, err := s.Tree.Open(s.Path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.Path, err)
	}
	defer func() { _ = file.Close() }() // only read from
	if err := e.openFuse(s); errors.As(err, new(fuse.Hold)) || errors.Is(err, fuse.ErrNoBuild) {
		return err, nil // this module is not loaded; without an optional one, the rest is
	} else if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Loading", "module", k.String(), "name", s.Name, "buildID", s.BuildID)
	e.Watchdog.Step("the load of %s for %s", s.Name, k)
	refusal = e.Host.Load(ctx, host.LoadRequest{Name: s.Name, File: file, Params: parameters, For: k.String()})
	e.Watchdog.Step("what follows the load of %s for %s", s.Name, k)
	e.Kernel.Changed()
	if e.Fuse != nil && !errors.Is(refusal, host.ErrTimeout) {
		if err := errors.Join(e.closeFuse(s, refusal == nil), e.blameOops(ctx, []plan.Step{s}, refusal)); err != nil {
			return nil, err
		}
	}
	if errors.Is(refusal, host.ErrNotMade) {
		return nil, refusal
	}
	if errors.Is(refusal, host.Errno("EEXIST")) {
		live, seeErr := e.Kernel.See(s.Name)
		if m, ok := live[s.Name]; seeErr == nil && ok && s.Is(m) {
			return nil, nil
		}
	}
	return refusal, nil
}

// verify asks the kernel whether the load did what it said.
func (e *Executor) verify(ctx context.Context, f observe.Facts, l *journal.Load, inserted []plan.Step, adopted bool) error {
	e.Kernel.Changed()
	live, err := e.Kernel.See(l.Main)
	if err != nil {
		return err
	}
	m, ok := live[l.Main]
	if !ok || m.State != host.StateLive || !f.Plan.MainStep().Is(m) {
		a := orders.Failed(v1beta1.ReasonLoadFailed, "The kernel accepted %s, but does not show this build as live.", l.Main)
		e.fail(ctx, f, orderhash.Of(f.Order), a)
		e.giveUp(f, a)
		return e.rollBack(ctx, f, inserted)
	}
	seen := observed(m)
	seen.Adopted = adopted
	l.Adopted = !slices.ContainsFunc(inserted, func(s plan.Step) bool { return s.Name == l.Main })
	return e.complete(f, l, seen)
}

// observed is what the status says of a module in the kernel. Who reads the status need not be root
// on the node.
func observed(m host.Module) v1beta1.ObservedModule {
	public := maps.Clone(m.Parameters)
	for _, name := range m.Private {
		delete(public, name)
	}
	return v1beta1.ObservedModule{BuildID: m.BuildID, SrcVersion: m.SrcVersion, Taint: m.Taint, Parameters: public}
}

// complete ends a load that is verified.
func (e *Executor) complete(f observe.Facts, l *journal.Load, seen v1beta1.ObservedModule) error {
	l.Complete, l.Since, l.Observed = true, e.now(), &seen
	if old := f.Loaded; old != nil && old.Complete && f.MainLive() {
		l.Began, l.Since = old.Began, old.Since // it was live all the time
	}
	if !l.Began.IsZero() && !seen.BuiltIn {
		seen.LoadBegan = l.Began.DeepCopy()
	}
	if f.Plan.Firmware == nil {
		if err := e.releaseFirmware(f.Key, f.Loaded, false); err != nil {
			return err
		}
	}
	if failure := e.failures[f.Task]; failure != nil && failure.Attempt.Reason != v1beta1.ReasonDrifted {
		delete(e.failures, f.Task)
	}
	e.Journal.NoteWorked(f.Task, l)
	return e.Journal.Write()
}

// Refresh notes that what is in the kernel is what the order asks for.
func (e *Executor) Refresh(f observe.Facts) error {
	next := *f.Loaded
	if f.Plan != nil {
		next = *e.intent(f)
		next.Adopted = f.Loaded.Adopted
		next.Complete, next.Began, next.Since, next.Observed = f.Loaded.Complete, f.Loaded.Began, f.Loaded.Since, f.Loaded.Observed
	}
	next.Item, next.Config, next.DeliveryID = f.Order.ModuleItem, f.Order.Config, orders.DeliveryID(f.Order)
	e.Journal.Loaded[f.Key] = &next
	if !next.Complete {
		seen := observed(f.Live[next.Main])
		seen.BuiltIn = next.BuiltIn
		return e.complete(f, &next, seen)
	}
	delete(e.failures, f.Task)
	e.Journal.NoteWorked(f.Task, &next)
	return e.Journal.Write()
}

// releaseFirmware ends the need of what is loaded for an order, or was about to be. reload: what is
// prepared for the order is needed next.
func (e *Executor) releaseFirmware(k orders.Key, l *journal.Load, reload bool) error {
	if e.Firmware == nil || l == nil || l.Config.Modprobe.FirmwarePath == "" {
		return nil
	}
	if reload {
		return wrap(e.Firmware.Release(k.String()), "firmware")
	}
	return wrap(e.Firmware.Remove(k.String()), "firmware")
}

// TidyFirmware removes, once after the start, what was staged for orders that are gone. What is
// loaded keeps its own: the kernel may ask for it again. keys are all that is ordered or loaded.
func (e *Executor) TidyFirmware(keys []orders.Key) error {
	if e.Firmware == nil || e.tidied {
		return nil
	}
	var keep []string
	for _, k := range keys {
		if e.Journal.Loaded[k] != nil || orders.Present(e.Orders[k]) {
			keep = append(keep, k.String())
		}
	}
	err := e.Firmware.Retain(keep)
	e.tidied = err == nil
	return wrap(err, "firmware")
}
