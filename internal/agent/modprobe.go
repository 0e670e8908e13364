// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/kmod"
)

// planModprobe makes the plan of an order that kmod's modprobe carries out: what it will load as far as that can be told beforehand. The
// crash fuse is told of these modules, and what of them came into the kernel is the order's.
func planModprobe(c v1beta1.ModuleConfig, delivery fs.FS, h host.Host, outgoing []string) (*plan, error) {
	args := modprobe.LoadArgs(&c.Modprobe)
	var p *plan
	var err error
	if modprobe.Raw(&c.Modprobe) {
		p, err = planRaw(c, delivery, h, outgoing, modprobe.Parse(args).Modules)
	} else {
		p, err = makePlan(c, delivery, h, outgoing)
	}
	if err != nil {
		return nil, err
	}
	if p.BuiltIn {
		return p, nil
	}
	if p.Firmware, err = firmwareOf(c, delivery); err != nil {
		return nil, err
	}
	if modprobe.Parse(args).Force { // what is certain otherwise is what the user wants to force
		p.hopeless = nil
	}
	if p.image, _, err = imageTree(delivery, h.Release()); err != nil {
		return nil, err
	}
	p.modprobe = args
	for i := range p.Steps {
		p.Steps[i].way = hash(args)
	}
	return p, nil
}

// planRaw plans for a command line of the user's own: what the modules that it names need, or, if they cannot be told, all of the image's
// that can be loaded, none of which is sure to be.
func planRaw(c v1beta1.ModuleConfig, delivery fs.FS, h host.Host, outgoing, names []string) (*plan, error) {
	imageFS, image, err := imageTree(delivery, h.Release())
	if err != nil {
		return nil, err
	}
	hostFS, hostTree, err := walkedHostTree(h)
	if err != nil {
		return nil, err
	}
	live, err := liveNames(h, outgoing)
	if err != nil {
		return nil, err
	}
	p := &plan{}
	steps, err := kmod.Resolve(kmod.Want{Modules: names, Live: live}, image, hostTree)
	main := modprobe.Main(&c.Modprobe)
	switch {
	case err != nil || len(names) == 0:
		steps = allOf(image, hostTree, live)
	case len(steps) == 0:
		return &plan{Main: main, BuiltIn: true}, nil
	case slices.ContainsFunc(steps, func(s kmod.Step) bool { return s.Name == main }):
		p.Main = main
	}
	for _, s := range steps {
		step, err := newStep(s, imageFS, hostFS)
		if err != nil {
			return nil, err
		}
		p.Steps = append(p.Steps, step)
	}
	return p, nil
}

// allOf are the image's modules with what they need, in load order, all optional.
func allOf(image, hostTree *kmod.Tree, live map[string]bool) []kmod.Step {
	var all []kmod.Step
	for _, name := range image.Names() {
		steps, err := kmod.Resolve(kmod.Want{Modules: []string{name}, Live: live}, image, hostTree)
		if err != nil {
			continue // modprobe will find the same
		}
		for _, s := range steps {
			if !slices.ContainsFunc(all, func(t kmod.Step) bool { return t.Name == s.Name }) {
				s.Optional = true
				all = append(all, s)
			}
		}
	}
	return all
}

// request is a run of modprobe for an order.
func (p *plan) request(k key, c v1beta1.ModprobeSpec) host.ModprobeRequest {
	return host.ModprobeRequest{
		Args: p.modprobe, Dir: c.DirName, Image: p.image, Modules: modprobe.Parse(p.modprobe).Modules, LoadOrder: c.ModulesLoadingOrder, For: k.String(),
	}
}

// probe lets modprobe load a plan and finds out what came of it. The intent is in the journal already.
func (p *pass) probe(ctx context.Context, f facts, l *loaded, adopted bool) error {
	var open []planStep
	for _, s := range f.plan.Steps {
		if _, live := f.live[s.Name]; live {
			continue
		}
		if err := p.openFuse(s); err != nil {
			return errors.Join(err, p.closeFuses(open))
		}
		open = append(open, s)
	}
	r := f.plan.request(f.key, f.order.Config.Modprobe)
	klog.FromContext(ctx).Info("Running modprobe", "module", f.key.String(), "args", r.Args)
	failed := p.o.Modprobe.Modprobe(ctx, r)
	p.present = nil
	if errors.Is(failed, host.ErrTimeout) {
		return p.refused(ctx, f, f.plan.main(), nil, failed) // the modules may still arrive; the journal names them
	}
	if err := errors.Join(p.closeFuses(open), p.blame(ctx, open, failed)); err != nil {
		return err
	}
	came, err := p.came(open)
	if err != nil {
		return err
	}
	if failed != nil {
		return p.refused(ctx, f, f.plan.blamed(failed), came, failed)
	}
	f.plan, err = p.settleMain(f.plan, l)
	if err != nil {
		return err
	}
	if f.plan.Main == "" {
		p.fail(ctx, f, f.orderHash(), report{
			State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed,
			Message: "modprobe ended without an error, but no module of the image came into the kernel; see what modprobe.rawArgs.load names.",
		})
		return p.rollBack(ctx, f, came)
	}
	return p.verify(ctx, f, l, came, adopted && len(came) == 0)
}

// openFuse notes that a module is about to be loaded.
func (p *pass) openFuse(s planStep) error {
	if p.o.Fuse == nil {
		return nil
	}
	if err := p.o.Fuse.Intent(s.burns(), p.o.Clock.Now()); err != nil {
		return fmt.Errorf("note the load of %s: %w", s.Name, err)
	}
	return nil
}

// closeFuses notes that no load of these is on its way any more.
func (p *pass) closeFuses(steps []planStep) error {
	if p.o.Fuse == nil || len(steps) == 0 {
		return nil
	}
	if _, err := p.see(nil); err != nil {
		return err
	}
	for _, s := range steps {
		if err := p.o.Fuse.Done(s.burns(), p.present[s.Name] == host.StateLive, p.o.Clock.Now()); err != nil {
			return fmt.Errorf("note the end of the load of %s: %w", s.Name, err)
		}
	}
	return nil
}

// came are those of the steps that are in the kernel now.
func (p *pass) came(steps []planStep) ([]planStep, error) {
	var came []planStep
	for _, s := range steps {
		live, err := p.see([]string{s.Name})
		if err != nil {
			return nil, err
		}
		if m, ok := live[s.Name]; ok && s.is(m) {
			came = append(came, s)
		}
	}
	return came, nil
}

// blamed is the step that an error names; without one, that of the main module.
func (p *plan) blamed(err error) planStep {
	var call *host.CallError
	if errors.As(err, &call) {
		for _, s := range p.Steps {
			if s.Name == call.Module {
				return s
			}
		}
	}
	return p.main()
}

// settleMain drops from the load what did not come, and finds the main module where the command line does not tell it: the topmost that came.
func (p *pass) settleMain(made *plan, l *loaded) (*plan, error) {
	settled := *made
	settled.Steps = nil
	for _, s := range made.Steps {
		live, err := p.see([]string{s.Name})
		if err != nil {
			return nil, err
		}
		m, ok := live[s.Name]
		if !ok && (s.Optional || s.Name != made.Main) {
			l.drop(s.Name)
			continue
		}
		settled.Steps = append(settled.Steps, s)
		if entry, _ := l.module(s.Name); made.Main == "" && entry.Ours && s.is(m) {
			settled.Main = s.Name // in load order: the last one is the topmost
		}
	}
	l.Main = settled.Main
	return &settled, nil
}

// sameEffect tells whether two settings leave the same in the kernel, given the same builds. What args say is about the way there; what rawArgs
// say is not known.
func sameEffect(a, b v1beta1.ModprobeSpec) bool {
	if modprobe.Raw(&a) || modprobe.Raw(&b) {
		return slices.Equal(modprobe.LoadArgs(&a), modprobe.LoadArgs(&b))
	}
	return slices.Equal(a.Parameters, b.Parameters)
}

// unprobe lets modprobe unload what it has loaded. What it leaves is for unload to look at: the facts are returned anew. done tells that
// there is nothing to do for now. Where another order counts on one of the modules, modprobe, which removes what nobody uses, is not asked.
func (p *pass) unprobe(ctx context.Context, f facts) (now facts, done bool, err error) {
	c := f.loaded.Config
	if p.o.Modprobe == nil || !modprobe.Wanted(&c.Modprobe) || slices.ContainsFunc(f.loaded.Modules, func(m loadedModule) bool { return f.needed(m.Name) }) {
		return f, false, nil
	}
	tree, err := p.o.Store.Open(f.loaded.DeliveryID)
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil // damaged and dropped: the agent unloads by itself
	}
	if err != nil {
		return f, false, fmt.Errorf("open delivery: %w", err)
	}
	image, _, err := imageTree(tree, p.o.Host.Release())
	if err != nil {
		return f, false, err
	}
	away := &plan{modprobe: modprobe.UnloadArgs(&c.Modprobe), image: image}
	klog.FromContext(ctx).Info("Running modprobe", "module", f.key.String(), "args", away.modprobe)
	failed := p.o.Modprobe.Modprobe(ctx, away.request(f.key, c.Modprobe))
	p.present = nil
	if now, err = p.facts(f.task); err != nil {
		return f, false, err
	}
	switch {
	case failed != nil:
		name := f.loaded.Main
		var call *host.CallError
		if errors.As(failed, &call) && now.live[call.Module].Name != "" {
			name = call.Module
		}
		m := now.live[name]
		m.Name = name
		p.fail(ctx, f, f.orderHash(), unloadReport(failed, m, p.usersOf(failed, name)))
		return now, true, nil
	case now.mainLive() && !now.needed(now.loaded.Main):
		p.fail(ctx, f, f.orderHash(), report{
			State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonUnloadFailed,
			Message: fmt.Sprintf("modprobe ended without an error, but %s is still in the kernel; see modprobe.args.unload and modprobe.rawArgs.unload.", now.loaded.Main),
		})
		return now, true, nil
	}
	return now, false, nil
}
