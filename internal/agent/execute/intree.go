// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
)

// makeRoom unloads the in-tree modules that the order names, and first the host's own that use
// them. They are on disk before, so that they come back. An attempt says why that failed.
func (e *Executor) makeRoom(ctx context.Context, f observe.Facts) (*orders.Attempt, error) {
	leaving, refused, err := e.leaving(f)
	if err != nil || refused != nil || len(leaving) == 0 {
		return refused, err
	}
	live, err := e.Kernel.See(leaving...)
	if err != nil {
		return nil, err
	}
	for _, name := range leaving {
		if !slices.Contains(e.Journal.Replaced[f.Key], name) {
			e.Journal.Replace(f.Key, name)
		}
		e.Journal.NoteParameters(live[name])
	}
	if err := e.Journal.Write(); err != nil {
		return nil, err
	}
	for _, name := range leaving {
		klog.FromContext(ctx).Info("Unloading what the order replaces", "module", f.Key.String(), "name", name)
		if err := e.remove(ctx, f.Key, name); err != nil && !errors.Is(err, host.Errno("ENOENT")) {
			return e.unloadFailed(err, name)
		}
		delete(f.Live, name)
	}
	return nil, nil
}

// planned reports whether a module is the build that the order would load, and so need not leave.
func planned(f observe.Facts, m host.Module) bool {
	return slices.ContainsFunc(f.Plan.Steps, func(s plan.Step) bool { return s.Name == m.Name && s.Is(m) })
}

// leaving are the modules that have to go for the order, users before what they use.
func (e *Executor) leaving(f observe.Facts) ([]string, *orders.Attempt, error) {
	if len(f.InTree()) == 0 {
		return nil, nil, nil
	}
	_, tree, err := plan.WalkedHostTree(e.Host)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	var visit func(name string) (*orders.Attempt, error)
	visit = func(name string) (*orders.Attempt, error) {
		live, err := e.Kernel.See(name)
		m, ok := live[name]
		if err != nil || !ok || slices.Contains(names, name) || planned(f, m) {
			return nil, err
		}
		if e.Journal.OursByOther(f.Key, name) {
			return orders.Failed(v1beta1.ReasonModuleConflict, "Module %s has to leave first, and another order wants it.", name), nil
		}
		for _, user := range m.Holders {
			if _, hosts := tree.Path(user); !hosts {
				continue // a stranger's: the kernel's refusal will name it
			}
			if a, err := visit(user); a != nil || err != nil {
				return a, err
			}
		}
		names = append(names, name)
		return nil, nil
	}
	for _, name := range f.InTree() {
		if a, err := visit(name); a != nil || err != nil {
			return nil, a, err
		}
	}
	return names, nil, nil
}

// PutBack loads what an order has replaced, last unloaded first. What another order replaces, too,
// becomes that one's to put back.
func (e *Executor) PutBack(ctx context.Context, k orders.Key) error {
	names := e.Journal.Replaced[k]
	if len(names) == 0 {
		return nil
	}
	for _, name := range slices.Backward(names) {
		steps, err := plan.OfHost(e.Host, name)
		if other, ok := e.alsoReplaces(k, steps); ok && err == nil {
			e.Journal.Replace(other, name)
			continue
		}
		if err == nil {
			var failed error
			if err, failed = e.loadHosts(ctx, k, steps, e.Journal.Parameters); failed != nil {
				return failed // what is left is put back when the agent can
			}
			if passing(err) {
				return fmt.Errorf("put %s back: %w", name, err)
			}
		}
		if err != nil {
			// Somebody may have loaded it, or its hardware may be gone.
			klog.FromContext(ctx).Error(err, "Cannot put a replaced module back", "module", k.String(), "name", name)
		}
	}
	return e.Journal.PutBack(k)
}

// passing tells whether a refusal is about the moment: the same call may succeed in the next.
func passing(refusal error) bool {
	return errors.Is(refusal, host.ErrTimeout) || slices.ContainsFunc([]string{"ENOMEM", "EINTR", "EAGAIN", "EBUSY"},
		func(errno string) bool { return errors.Is(refusal, host.Errno(errno)) })
}

// alsoReplaces finds another order that wants one of the modules away.
func (e *Executor) alsoReplaces(k orders.Key, steps []plan.Step) (orders.Key, bool) {
	for other, o := range e.Orders {
		if other == k || orders.Absent(o) {
			continue
		}
		replaced := orders.InTree(o.Config)
		if slices.ContainsFunc(steps, func(s plan.Step) bool { return slices.Contains(replaced, s.Name) }) {
			return other, true
		}
	}
	return orders.Key{}, false
}

// loadHosts loads modules of the host, with the parameters that they had, by module. Of its errors,
// see insert.
func (e *Executor) loadHosts(ctx context.Context, k orders.Key, steps []plan.Step, had map[string]map[string]string) (refusal, err error) {
	for _, s := range steps {
		live, err := e.Kernel.See(s.Name)
		if err != nil {
			return nil, err
		}
		if len(live) > 0 {
			continue
		}
		klog.FromContext(ctx).Info("Putting back", "module", k.String(), "name", s.Name)
		refusal, err := e.insert(ctx, k, s, nil)
		if refusal == nil && err == nil {
			refusal, err = e.asItWas(ctx, k, s, had[s.Name])
		}
		if err != nil || refusal != nil && !s.Optional {
			return refusal, err
		}
	}
	return nil, nil
}

// asItWas loads a module once more where it had other parameters than it comes with: the host's
// options are not the agent's to read. What the kernel refuses so, or uses by now, stays without.
func (e *Executor) asItWas(ctx context.Context, k orders.Key, s plan.Step, had map[string]string) (refusal, err error) {
	live, err := e.Kernel.See(s.Name)
	if err != nil {
		return nil, err
	}
	differ := differing(had, live[s.Name].Parameters)
	if len(differ) == 0 {
		return nil, nil
	}
	klog.FromContext(ctx).Info("Putting back with its parameters", "module", k.String(), "name", s.Name, "parameters", differ)
	if err := e.remove(ctx, k, s.Name); err != nil {
		klog.FromContext(ctx).Error(err, "A module that was put back is in use without its parameters", "module", k.String(), "name", s.Name)
		return nil, nil
	}
	refusal, err = e.insert(ctx, k, s, differ)
	if refusal == nil || err != nil || passing(refusal) {
		return refusal, err
	}
	klog.FromContext(ctx).Error(refusal, "A module is put back without its parameters", "module", k.String(), "name", s.Name)
	return e.insert(ctx, k, s, nil)
}

// differing are the parameters that have other values now. Values that the kernel shows and would
// not take so are left out.
func differing(before, now map[string]string) []string {
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		value := before[name]
		if value == now[name] || value == "" || value == "(null)" || strings.ContainsAny(value, "\"\n") {
			continue
		}
		differ = append(differ, name+"="+value)
	}
	return differ
}

// PutBlacklists keeps the host from loading what orders replace, where they ask for it. Attempts
// say for which orders that failed; they are carried out all the same.
func (e *Executor) PutBlacklists() map[orders.Key]*orders.Attempt {
	failed := map[orders.Key]*orders.Attempt{}
	for k, o := range e.Orders {
		if !asksForBlacklist(o) || o.Paused {
			continue
		}
		if e.Blacklist == nil {
			failed[k] = orders.Failed(v1beta1.ReasonUnsupported, "blacklistInTree needs the host's /etc/modprobe.d, which this node's agent does "+
				"not have: deploy the component config/blacklist, or set blacklistInTree to false. The order is carried out without it.")
			continue
		}
		if err := e.Blacklist.Put(k.String(), orders.InTree(o.Config)); err != nil {
			failed[k] = orders.Failed(v1beta1.ReasonAgentFailed,
				"The modules that the order replaces are not blacklisted: %v. The order is carried out without it.", err)
		}
	}
	return failed
}

// TidyBlacklists removes the files of Modules that left, or ask for none any more. What is loaded
// keeps its own until it goes, as does what is paused. keys are all that is ordered or loaded.
func (e *Executor) TidyBlacklists(keys []orders.Key) error {
	if e.Blacklist == nil {
		return nil
	}
	var keep []string
	for _, k := range keys {
		o := e.Orders[k]
		if o != nil && (asksForBlacklist(o) || o.Paused) || e.Journal.Loaded[k] != nil && !orders.Present(o) {
			keep = append(keep, k.String())
		}
	}
	return wrap(e.Blacklist.Retain(keep), "tidy")
}

func asksForBlacklist(o *v1beta1.NodeModuleSpec) bool {
	return o.BlacklistInTree && orders.Present(o) && len(orders.InTree(o.Config)) > 0
}
