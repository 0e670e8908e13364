// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/kmod"
)

// makeRoom unloads the in-tree modules that the order names, and before them the host's own modules that use them. What leaves is on disk
// first, so that it comes back. A report says why that failed.
func (p *pass) makeRoom(ctx context.Context, f facts) (*report, error) {
	leaving, refused, err := p.leaving(f)
	if err != nil || refused != nil || len(leaving) == 0 {
		return refused, err
	}
	for _, name := range leaving {
		if !slices.Contains(p.journal.Replaced[f.key], name) {
			p.journal.replace(f.key, name)
		}
	}
	if err := p.noteJournal(); err != nil {
		return nil, err
	}
	for _, name := range leaving {
		klog.FromContext(ctx).Info("Unloading what the order replaces", "module", f.key.String(), "name", name)
		err := p.o.Host.Unload(ctx, host.UnloadRequest{Name: name, For: f.key.String()})
		p.present = nil
		if err != nil && !errors.Is(err, host.Errno("ENOENT")) {
			now, seeErr := p.see([]string{name})
			if seeErr != nil {
				return nil, seeErr
			}
			m := now[name]
			m.Name = name
			r := unloadReport(err, m, p.usersOf(err, name))
			return &r, nil
		}
		delete(f.live, name)
	}
	return nil, nil
}

// leaving are the modules that have to go for the order, users before what they use.
func (p *pass) leaving(f facts) ([]string, *report, error) {
	if len(f.inTree()) == 0 {
		return nil, nil, nil
	}
	_, tree, err := walkedHostTree(p.o.Host)
	if err != nil {
		return nil, nil, err
	}
	var order []string
	var visit func(name string) (*report, error)
	visit = func(name string) (*report, error) {
		live, err := p.see([]string{name})
		m, ok := live[name]
		if err != nil || !ok || slices.Contains(order, name) || name == f.plan.Main && f.plan.main().is(m) {
			return nil, err
		}
		if p.journal.oursByOther(f.key, name) {
			return &report{
				State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonModuleConflict,
				Message: fmt.Sprintf("Module %s shall be removed first, and another order wants it.", name),
			}, nil
		}
		for _, user := range m.Holders {
			if _, hosts := tree.Path(user); !hosts {
				continue // a stranger's: the kernel's refusal will name it
			}
			if r, err := visit(user); r != nil || err != nil {
				return r, err
			}
		}
		order = append(order, name)
		return nil, nil
	}
	for _, name := range f.inTree() {
		if r, err := visit(name); r != nil || err != nil {
			return nil, r, err
		}
	}
	return order, nil, nil
}

// putBack loads again what an order has replaced, last unloaded first. What another order replaces too becomes that one's to put back.
func (p *pass) putBack(ctx context.Context, k key) error {
	names := p.journal.Replaced[k]
	if len(names) == 0 {
		return nil
	}
	for _, name := range slices.Backward(names) {
		steps, err := p.hostsPlan(name)
		if other, ok := p.alsoReplaces(k, steps); ok && err == nil {
			p.journal.replace(other, name)
			continue
		}
		if err == nil {
			err = p.loadHosts(ctx, k, steps)
		}
		if err != nil {
			// The node is as good as it gets; somebody else may have it loaded by now, or its hardware may be gone.
			klog.FromContext(ctx).Error(err, "Cannot put a replaced module back", "module", k.String(), "name", name)
		}
	}
	delete(p.journal.Replaced, k)
	return p.noteJournal()
}

// alsoReplaces finds another order that wants one of the modules away.
func (p *pass) alsoReplaces(k key, steps []planStep) (key, bool) {
	for other, o := range p.orders {
		if other == k || o.State == v1beta1.NodeModuleAbsent {
			continue
		}
		replaced := inTree(o.Config)
		if slices.ContainsFunc(steps, func(s planStep) bool { return slices.Contains(replaced, s.Name) }) {
			return other, true
		}
	}
	return key{}, false
}

// hostsPlan are a module of the host's own tree and what it needs, in load order.
func (p *pass) hostsPlan(name string) ([]planStep, error) {
	dir, tree, err := walkedHostTree(p.o.Host)
	if err != nil {
		return nil, err
	}
	steps, err := kmod.Resolve(kmod.Want{Modules: []string{name}}, nil, tree)
	if err != nil {
		return nil, err
	}
	var plan []planStep
	for _, s := range steps {
		plan = append(plan, planStep{Name: s.Name, BuildID: identity(s.Info.BuildID, s.Info.SrcVersion), Tree: dir, Path: s.Path, Optional: s.Optional, InTree: s.Info.InTree})
	}
	return plan, nil
}

// loadHosts loads what is not live.
func (p *pass) loadHosts(ctx context.Context, k key, steps []planStep) error {
	for _, s := range steps {
		live, err := p.see([]string{s.Name})
		if err != nil {
			return err
		}
		if len(live) > 0 {
			continue
		}
		klog.FromContext(ctx).Info("Putting back", "module", k.String(), "name", s.Name)
		if err := p.insert(ctx, k, s, nil); err != nil && !s.Optional {
			return err
		}
	}
	return nil
}
