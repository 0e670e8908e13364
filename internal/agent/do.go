// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/kmod"
)

// fail remembers a failure of an order and when to try again.
func (p *pass) fail(ctx context.Context, f facts, hash string, r report) {
	p.retries[f.task] = p.retries[f.task].next(hash, p.o.Clock.Now(), r)
	klog.FromContext(ctx).Info("Order not fulfilled", "module", f.key.String(), "state", r.State, "reason", r.Reason,
		"message", r.Message, "attempt", p.retries[f.task].report.Attempt, "previous", f.previous)
}

// resolve finds out what to load.
func (p *pass) resolve(ctx context.Context, f facts) error {
	id := deliveryID(f.order)
	tree, err := p.o.Store.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		delete(p.held, id) // damaged: the status no longer claims it, and the operator delivers again
		return nil
	}
	if err != nil {
		return fmt.Errorf("open delivery: %w", err)
	}
	make := makePlan
	if modprobe.Wanted(&f.order.Config.Modprobe) {
		make = planModprobe
	}
	made, err := make(f.order.Config, tree, p.o.Host, f.outgoing())
	var none *planError
	if errors.As(err, &none) {
		p.fail(ctx, f, f.orderHash(), report{State: v1beta1.AttemptFailed, Reason: none.reason, Message: fmt.Sprintf("Nothing can be loaded: %v.", none)})
		if !slices.Contains(f.outgoing(), kmod.NormalizeName(none.needs)) { // that one is live, and no help
			p.retries[f.task].needs = none.needs
		}
		return nil
	}
	if err != nil {
		return err
	}
	if p.journal.used(f.key, id) {
		if err := p.noteJournal(); err != nil {
			return err
		}
	}
	p.plans[f.task] = made
	p.known[f.task] = knownPlan{hash: f.orderHash(), plan: made}
	return nil
}

// load brings the plan into the kernel. The intent is on disk before the first call: whoever comes after a kill finds
// it, looks at the kernel and goes on.
func (p *pass) load(ctx context.Context, f facts, drifted bool) error {
	l := p.intent(f)
	if drifted {
		l.Repairs, l.LastRepair = l.Repairs+1, ptr.To(p.now())
	}
	p.journal.Loaded[f.key] = l
	if err := p.noteJournal(); err != nil {
		return err
	}
	if drifted {
		p.fail(ctx, f, f.orderHash(), *l.drifted())
	}
	if f.plan.BuiltIn {
		return p.complete(f, l, v1beta1.ObservedModule{BuiltIn: true})
	}
	r, err := p.makeRoom(ctx, f)
	if err != nil {
		return err
	}
	if r == nil {
		r = p.stageFirmware(f)
	}
	if r != nil {
		p.fail(ctx, f, f.orderHash(), *r)
		if p.reloading[f.key] {
			p.giveUp(f, *r)
		}
		return p.rollBack(ctx, f, nil)
	}
	_, adopted := f.live[l.Main]
	if !adopted {
		l.Began = p.now() // what was replaced is gone by now
	}
	adopted = adopted && !p.journal.oursByOther(f.key, l.Main)
	if f.plan.modprobe != nil {
		return p.probe(ctx, f, l, adopted)
	}
	return p.insertAll(ctx, f, l, adopted)
}

// insertAll inserts what the plan names and the kernel lacks, in order. adopted: the main module is live already.
func (p *pass) insertAll(ctx context.Context, f facts, l *loaded, adopted bool) error {
	var inserted []planStep
	for _, s := range f.plan.Steps {
		if m, ok := f.live[s.Name]; ok && (s.Name != f.plan.Main || s.is(m)) {
			continue
		}
		if p.ending() {
			return nil // the journal names what was begun; the next agent goes on
		}
		err := p.insert(ctx, f.key, s, f.parameters(s.Name))
		if errors.Is(err, host.Errno("EEXIST")) && s.Name != f.plan.Main {
			err = nil // a dependency that came meanwhile is taken as it is
		}
		if err != nil && s.Optional && !errors.Is(err, host.ErrTimeout) {
			klog.FromContext(ctx).Info("Going on without an optional module", "module", f.key.String(), "name", s.Name, "why", err.Error())
			l.drop(s.Name)
			continue
		}
		if err != nil {
			return p.refused(ctx, f, s, inserted, err)
		}
		inserted = append(inserted, s)
	}
	return p.verify(ctx, f, l, inserted, adopted && len(inserted) == 0)
}

// refused ends a load that the kernel has refused at a step.
func (p *pass) refused(ctx context.Context, f facts, s planStep, inserted []planStep, err error) error {
	var settable []string
	if s.Name == f.plan.Main {
		settable = s.Params
	}
	r := loadReport(err, settable)
	dependency, other, found, seeErr := p.against(f, s, r)
	if seeErr != nil {
		return seeErr
	}
	known := refusal{Delivery: deliveryID(f.order)}
	if found {
		r, known.Against = conflicting(err, s, dependency, other), dependency.Name+" "+other
	}
	p.fail(ctx, f, f.orderHash(), r)
	if errors.Is(err, host.ErrTimeout) {
		return nil // the module may still arrive; the journal names it
	}
	p.giveUp(f, r)
	if err := p.rollBack(ctx, f, inserted); err != nil {
		return err
	}
	if _, err := p.see(nil); err != nil {
		return err
	}
	known.Among = digestOf(p.present)
	if !p.journal.remember(s, r, known) {
		return nil
	}
	return p.noteJournal()
}

// intent is the journal's entry for a load that is about to begin.
func (p *pass) intent(f facts) *loaded {
	l := &loaded{
		Item: f.order.ModuleItem, Config: f.order.Config, DeliveryID: deliveryID(f.order),
		BuiltIn: f.plan.BuiltIn, Main: f.plan.Main,
	}
	if f.sameLoad() {
		l.Repairs, l.LastRepair = f.loaded.Repairs, f.loaded.LastRepair
	}
	for _, s := range f.plan.Steps {
		before, _ := f.loaded.module(s.Name)
		m, live := f.live[s.Name]
		live = live && !slices.Contains(f.inTree(), s.Name) // that one leaves before the load
		if !live && s.Name == f.plan.Main {
			l.Began = p.now()
		}
		id := s.BuildID
		if live && s.Name != f.plan.Main {
			id = identity(m.BuildID, m.SrcVersion) // a dependency that is there is taken as it is
		}
		l.Modules = append(l.Modules, loadedModule{
			Name: s.Name, BuildID: id, Planned: s.BuildID, Content: s.Content,
			Ours: !live || before.Ours || s.Name == f.plan.Main || p.journal.oursByOther(f.key, s.Name),
		})
	}
	return l
}

// insert loads one module. A module that appeared meanwhile is as good when it is the same build.
func (p *pass) insert(ctx context.Context, k key, s planStep, parameters []string) error {
	file, err := s.Tree.Open(s.Path)
	if err != nil {
		return fmt.Errorf("open %s: %w", s.Path, err)
	}
	defer func() { _ = file.Close() }() // only read from
	r := host.LoadRequest{Name: s.Name, File: file, Params: parameters, For: k.String()}
	klog.FromContext(ctx).Info("Loading", "module", k.String(), "name", s.Name, "buildID", s.BuildID)
	if p.o.Fuse != nil {
		if err := p.o.Fuse.Intent(s.burns(), p.o.Clock.Now()); err != nil {
			return fmt.Errorf("note the load: %w", err)
		}
	}
	err = p.o.Host.Load(ctx, r)
	p.present = nil
	if p.o.Fuse != nil && !errors.Is(err, host.ErrTimeout) {
		if failed := p.o.Fuse.Done(s.burns(), err == nil, p.o.Clock.Now()); failed != nil {
			return fmt.Errorf("note the end of the load: %w", failed)
		}
		if failed := p.blame(ctx, []planStep{s}, err); failed != nil {
			return failed
		}
	}
	if errors.Is(err, host.Errno("EEXIST")) {
		live, seeErr := p.see([]string{s.Name})
		if m, ok := live[s.Name]; seeErr == nil && ok && s.is(m) {
			return nil
		}
	}
	return err
}

// rollBack takes out again what a failed load has put in. What cannot go stays in the journal as ours.
func (p *pass) rollBack(ctx context.Context, f facts, inserted []planStep) error {
	for i := len(inserted) - 1; i >= 0; i-- {
		err := p.o.Host.Unload(ctx, host.UnloadRequest{Name: inserted[i].Name, For: f.key.String()})
		p.present = nil
		if err != nil {
			break // somebody uses it by now
		}
	}
	left, err := p.facts(f.task)
	if err != nil || len(left.oursLive()) > 0 {
		return err
	}
	if err := p.releaseFirmware(f.key); err != nil {
		return err
	}
	if err := p.drop(f.key); err != nil {
		return err
	}
	if f.mayFallBack() {
		return nil // what was replaced stays so for the previous one
	}
	return p.putBack(ctx, f.key)
}

// verify asks the kernel whether the load did what it said.
func (p *pass) verify(ctx context.Context, f facts, l *loaded, inserted []planStep, adopted bool) error {
	p.present = nil
	live, err := p.see([]string{l.Main})
	if err != nil {
		return err
	}
	m, ok := live[l.Main]
	if !ok || m.State != host.StateLive || !f.plan.main().is(m) {
		r := report{
			State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed,
			Message: fmt.Sprintf("The kernel accepted %s, but does not show this build as live.", l.Main),
		}
		p.fail(ctx, f, f.orderHash(), r)
		p.giveUp(f, r)
		return p.rollBack(ctx, f, inserted)
	}
	return p.complete(f, l, v1beta1.ObservedModule{
		BuildID: m.BuildID, SrcVersion: m.SrcVersion, Taint: m.Taint, Parameters: m.Parameters, Adopted: adopted,
	})
}

// complete ends a load that is verified.
func (p *pass) complete(f facts, l *loaded, seen v1beta1.ObservedModule) error {
	l.Complete, l.Since, l.Observed = true, p.now(), &seen
	if old := f.loaded; old != nil && old.Complete && f.mainLive() {
		l.Began, l.Since = old.Began, old.Since // it was live all the time
	}
	if !l.Began.IsZero() && !seen.BuiltIn {
		seen.LoadBegan = l.Began.DeepCopy()
	}
	if p.o.Firmware != nil && f.plan.Firmware == nil && f.loaded != nil && f.loaded.Config.Modprobe.FirmwarePath != "" {
		if err := p.o.Firmware.Remove(f.key.String()); err != nil {
			return fmt.Errorf("firmware: %w", err)
		}
	}
	if r := p.retries[f.task]; r != nil && r.report.Reason != v1beta1.ReasonDrifted {
		delete(p.retries, f.task)
	}
	p.journal.worked(f, l)
	return p.noteJournal()
}

// now is the time of day, as precisely as the API keeps it.
func (p *pass) now() metav1.Time { return metav1.NewTime(p.o.Clock.Now()).Rfc3339Copy() }

// refresh notes that what is in the kernel is what the order asks for, changed as it may be in other respects.
func (p *pass) refresh(f facts) error {
	next := *f.loaded
	if f.plan != nil {
		next = *p.intent(f)
		next.Complete, next.Began, next.Since, next.Observed = f.loaded.Complete, f.loaded.Began, f.loaded.Since, f.loaded.Observed
	}
	next.Item, next.Config, next.DeliveryID = f.order.ModuleItem, f.order.Config, deliveryID(f.order)
	p.journal.Loaded[f.key] = &next
	if !next.Complete {
		m := f.live[next.Main]
		return p.complete(f, &next, v1beta1.ObservedModule{
			BuildID: m.BuildID, SrcVersion: m.SrcVersion, Taint: m.Taint, Parameters: m.Parameters, BuiltIn: next.BuiltIn,
		})
	}
	delete(p.retries, f.task)
	p.journal.worked(f, &next)
	return p.noteJournal()
}

// unload takes out what is ours, last loaded first. A dependency that somebody else uses by now may stay; what the order
// names may not.
func (p *pass) unload(ctx context.Context, f facts) error {
	f, done, err := p.unprobe(ctx, f)
	if done || err != nil {
		return err
	}
	beforeMain := false // walking backwards: true once only dependencies of the main module are left
	for _, m := range f.oursLive() {
		if m.Name != f.loaded.Main && !beforeMain {
			_, live := f.live[f.loaded.Main]
			beforeMain = !live
		}
		if p.ending() {
			return nil // what is left is still ours in the journal
		}
		klog.FromContext(ctx).Info("Unloading", "module", f.key.String(), "name", m.Name, "buildID", m.BuildID)
		err := p.o.Host.Unload(ctx, host.UnloadRequest{Name: m.Name, For: f.key.String()})
		p.present = nil
		switch {
		case err == nil, errors.Is(err, host.Errno("ENOENT")):
		case beforeMain && busy(err):
		default:
			now, seeErr := p.see([]string{m.Name})
			if seeErr != nil {
				return seeErr
			}
			facts := now[m.Name]
			facts.Name = m.Name
			p.fail(ctx, f, f.orderHash(), unloadReport(err, facts, p.usersOf(err, m.Name)))
			return nil
		}
		beforeMain = beforeMain || m.Name == f.loaded.Main
	}
	return p.forget(ctx, f.key)
}

// forget ends an order's hold on the kernel. What is ours and another order counts on, passes to that order.
func (p *pass) forget(ctx context.Context, k key) error {
	for _, m := range p.journal.Loaded[k].Modules {
		if !m.Ours {
			continue
		}
		for other, l := range p.journal.Loaded {
			for i := range l.Modules {
				if other != k && l.Modules[i].Name == m.Name {
					l.Modules[i].Ours = true
				}
			}
		}
	}
	if err := p.releaseFirmware(k); err != nil {
		return err
	}
	delete(p.retries, task{key: k})
	delete(p.retries, task{key: k, previous: true})
	reload := p.orders[k] != nil && p.orders[k].State != v1beta1.NodeModuleAbsent
	if !reload {
		delete(p.journal.Worked, k)
	}
	if err := p.drop(k); err != nil {
		return err
	}
	if reload {
		p.reloading[k] = true
		return nil // what was replaced stays so
	}
	return p.putBack(ctx, k)
}

func (p *pass) drop(k key) error {
	delete(p.journal.Loaded, k)
	return p.noteJournal()
}
