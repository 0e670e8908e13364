// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
	"github.com/drover-project/drover/internal/agent/report"
)

// stuck is what the kernel's refusal to unload a module has taught. The kernel counts references,
// and does not always show whose they are.
type stuck struct {
	permanent bool // it has no exit function
	// shared references went with the modules that left before it.
	shared int
}

// ask finds out, before the first call of a change, what it will certainly meet: modules that have
// to leave and cannot, firmware that cannot be staged. ours are the order's own modules that are to
// leave, users before what they use. An attempt says what is in the way: nothing is touched.
func (e *Executor) ask(ctx context.Context, f observe.Facts, ours []journal.Module) (*orders.Attempt, error) {
	if f.Loaded != nil && modprobe.Wanted(&f.Loaded.Config.Modprobe) && len(ours) > 0 {
		ours = nil // what modprobe's own arguments take out before is not known
	}
	var leaving, mayStay []string
	for _, m := range ours {
		if slices.Contains(leaving, f.Loaded.Main) {
			mayStay = append(mayStay, m.Name) // what the main module depends on leaves if it can
			continue
		}
		leaving = append(leaving, m.Name)
	}
	next := orders.Present(e.Orders[f.Key]) && f.Plan != nil && !f.Plan.BuiltIn
	if next {
		replaced, a, err := e.leaving(f)
		if a != nil || err != nil {
			return a, err
		}
		for _, name := range replaced {
			if !slices.Contains(leaving, name) && !slices.Contains(mayStay, name) {
				leaving = append(leaving, name)
			}
		}
	}
	if a, err := e.inTheWay(leaving, mayStay); a != nil || err != nil {
		return a, err
	}
	if !next || f.Plan.Firmware == nil || e.Firmware == nil {
		return nil, nil
	}
	if err := e.Firmware.Prepare(f.Key.String(), f.Plan.Firmware); err != nil {
		klog.FromContext(ctx).Info("Firmware cannot be staged: what is loaded stays", "module", f.Key.String(), "why", err.Error())
		return report.FirmwareFailed(err), nil
	}
	return nil, nil
}

// inTheWay finds the first module that cannot leave after those before it, and says who uses it.
// The first of all is the kernel's to answer for: nothing has left by then.
func (e *Executor) inTheWay(leaving, mayStay []string) (*orders.Attempt, error) {
	live, err := e.Kernel.See(leaving...)
	if err != nil {
		return nil, err
	}
	stays := func(name string) bool { return !slices.Contains(leaving, name) && !slices.Contains(mayStay, name) }
	for i, name := range leaving {
		m, ok := live[name]
		if !ok {
			delete(e.stuck, name)
			delete(e.searches, name)
		}
		if !ok || m.RefCount < 0 {
			continue
		}
		if i > 0 && m.State != host.StateLive {
			return orders.NotReturned(name), nil
		}
		others := m.RefCount - len(m.Holders)
		e.counted[name] = others
		if i == 0 {
			continue
		}
		known, learnt := e.stuck[name]
		var by report.Usage
		switch {
		case slices.ContainsFunc(m.Holders, stays), learnt && (known.permanent || others > known.shared):
			by.Users, by.Err = e.Host.Users(name)
		case others > 0:
			by.Users, by.Err = e.Host.Users(name)
			if !e.usedOutside(name, others, &by) {
				continue // the references may be of modules that leave before: the kernel knows
			}
		default:
			continue
		}
		by.Users = slices.DeleteFunc(by.Users, func(u host.User) bool { return u.Kind == host.UserModule && !stays(u.Name) })
		m.Holders = slices.DeleteFunc(m.Holders, func(h string) bool { return !stays(h) })
		return report.UnloadFailed(host.Errno("EBUSY"), m, by), nil
	}
	return nil, nil
}

// outside is a user that stays whatever leaves. That it is one may be a guess, as of most block
// devices; but a reference there is, and its owner was found.
func outside(u host.User) bool { return u.Kind == host.UserProcess || u.Kind == host.UserMount }

// maxUnfinished searches in a row that do not come to their end keep a set from being touched: on a
// busy node the next one may. On one where something holds up each search, the kernel is asked.
const maxUnfinished = 3

// search is what is known of a module's users: what the last search has found that came to its end,
// with so many references, and how many did not since.
type search struct {
	users      []host.User
	others     int
	unfinished int
}

// usedOutside tells whether a module's references are, or may be, of users that stay whatever
// leaves. What was found before holds while the references are there.
func (e *Executor) usedOutside(name string, others int, by *report.Usage) bool {
	known := e.searches[name]
	switch {
	case slices.ContainsFunc(by.Users, outside):
		e.searches[name] = search{users: by.Users, others: others}
		return true
	case !errors.Is(by.Err, host.ErrTimeout):
		delete(e.searches, name)
		return false
	case len(known.users) > 0 && others >= known.others:
		by.Users = known.users
		return true
	}
	known.unfinished++
	e.searches[name] = search{unfinished: known.unfinished}
	return known.unfinished <= maxUnfinished
}

// learn remembers why the kernel refused to unload a module. m are the facts of after that.
func (e *Executor) learn(refused error, m host.Module) {
	before, asked := e.counted[m.Name]
	left := m.RefCount - len(m.Holders)
	switch {
	case !asked || len(m.Holders) > 0 || m.State != host.StateLive:
	case left == 0 && errors.Is(refused, host.Errno("EBUSY")):
		e.stuck[m.Name] = stuck{permanent: true}
	default:
		e.stuck[m.Name] = stuck{shared: max(before-left, 0)}
	}
}

// restore brings back what left the kernel before the main module of an order, which the kernel
// keeps.
func (e *Executor) restore(ctx context.Context, f observe.Facts) error {
	now, err := e.lookAgain(f)
	if err != nil || !now.Holds() || f.Loaded.BuiltIn || modprobe.Wanted(&f.Loaded.Config.Modprobe) {
		return err
	}
	gone := func(s plan.Step) bool {
		_, ours := f.Loaded.Module(s.Name)
		_, live := now.Live[s.Name]
		return ours && !live
	}
	if !slices.ContainsFunc(f.Loaded.Modules, func(m journal.Module) bool { _, live := now.Live[m.Name]; return !live }) {
		return nil
	}
	tree, err := e.Store.Open(f.Loaded.DeliveryID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // damaged and dropped: the operator delivers again, and the next load brings them
	}
	if err != nil {
		return wrap(err, "open delivery")
	}
	made, err := plan.Make(f.Loaded.Config, tree, e.Host, nil)
	if _, none := errors.AsType[*plan.Error](err); none {
		return nil
	}
	if err != nil {
		return err
	}
	made.Steps = slices.DeleteFunc(made.Steps, func(s plan.Step) bool { return !gone(s) })
	refusal, err := e.loadHosts(ctx, f.Key, made.Steps, nil)
	if refusal != nil {
		klog.FromContext(ctx).Error(refusal, "Cannot bring back what left before a module that stays", "module", f.Key.String())
	}
	return err
}
