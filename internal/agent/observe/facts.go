// SPDX-License-Identifier: Apache-2.0

// Package observe has what a decision about an order depends on, and looks at the kernel for it.
package observe

import (
	"maps"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

// Facts are everything that a decision about one order depends on.
type Facts struct {
	orders.Task
	Order              *v1beta1.NodeModuleSpec // nil: no entry names what was loaded
	Loaded             *journal.Load           // nil: nothing was loaded for this order in this boot
	Live               map[string]host.Module  // modules in the kernel, of those that matter here
	Among              string                  // identifies the set of all modules in the kernel
	Release            string                  // of the running kernel
	Firmware, Modprobe bool                    // firmware can be staged, kmod's modprobe be run
	Held               bool                    // the store has the wanted delivery
	PreviousHeld       bool                    // the store has the delivery of the last order that worked
	Looked             bool                    // the carrier was looked at in this pass and had not delivered
	Plan               *plan.Plan              // what to load; nil until resolved
	Unverified         bool                    // the plan is of an earlier pass
	Rival              *orders.Key             // another order for the same module, with other parameters; nil: none
	Hold               *orders.Attempt         // why the fuse keeps the plan out; nil: it does not
	Unusable           *orders.Attempt         // why what is live is not ready; nil: it is, or nothing is
	Failure            *orders.Failure         // nil: none is remembered
	Journal            *journal.Journal
	Now                time.Time
}

// Main is the module that the order names.
func (f Facts) Main() string { return modprobe.Main(&f.Order.Config.Modprobe) }

// InTree are the modules that leave first.
func (f Facts) InTree() []string { return orders.InTree(f.Order.Config) }

// Names are the modules that matter.
func (f Facts) Names() []string {
	var names []string
	if f.Order != nil {
		names = append(append(names, f.Main()), f.InTree()...)
	}
	if f.Loaded != nil {
		for _, m := range f.Loaded.Modules {
			names = append(names, m.Name)
		}
	}
	if f.Plan != nil {
		for _, s := range f.Plan.Steps {
			names = append(names, s.Name)
		}
	}
	return names
}

// Satisfied tells whether what this very order brought in is live.
func (f Facts) Satisfied() bool {
	return f.Holds() && f.Loaded.DeliveryID == orders.DeliveryID(f.Order) &&
		apiequality.Semantic.DeepEqual(f.Loaded.Config, f.Order.Config)
}

// Holds tells whether what was loaded for the order, or for an earlier form of it, is live.
func (f Facts) Holds() bool {
	return f.Loaded != nil && f.Loaded.Complete && (f.Loaded.BuiltIn || f.MainLive())
}

// MainLive tells whether the main module of what was loaded is live, and still the same build.
func (f Facts) MainLive() bool {
	m, _ := f.Loaded.Module(f.Loaded.Main)
	l, ok := f.Live[f.Loaded.Main]
	return ok && l.State == host.StateLive && orders.IdentityOf(l) == m.BuildID
}

// SameLoad tells whether what was loaded is what the plan names, with the same parameters.
func (f Facts) SameLoad() bool {
	if f.Loaded == nil || f.Loaded.Main != f.Plan.Main || f.Loaded.BuiltIn != f.Plan.BuiltIn ||
		!SameEffect(f.Loaded.Config.Modprobe, f.Order.Config.Modprobe) {
		return false
	}
	for _, s := range f.Plan.Steps {
		m, ok := f.Loaded.Module(s.Name)
		if ok && (m.Planned != s.BuildID || m.Content != s.Content) || !ok && s.Name == f.Plan.Main {
			return false
		}
	}
	return true
}

// SameEffect tells whether two settings leave the same in the kernel. args are about the way there;
// what rawArgs do is not known.
func SameEffect(a, b v1beta1.ModprobeSpec) bool {
	if modprobe.Raw(&a) || modprobe.Raw(&b) {
		return slices.Equal(modprobe.LoadArgs(&a), modprobe.LoadArgs(&b))
	}
	return slices.Equal(a.Parameters, b.Parameters)
}

// OursLive are the modules, last loaded first, that an unload would take out.
func (f Facts) OursLive() []journal.Module { return f.Journal.OursLive(f.Key, f.Loaded, f.Live) }

// Outgoing are the modules that leave the kernel before another build is loaded for the order.
func (f Facts) Outgoing() []string {
	names := f.InTree()
	for _, m := range f.OursLive() {
		names = append(names, m.Name)
	}
	return names
}

// MayFallBack tells whether a previous order may serve: for the same kernel, its content on this
// node, and nothing else of ours in its way.
func (f Facts) MayFallBack() bool {
	w := f.Journal.Worked[f.Key]
	if f.Previous || w == nil || !f.PreviousHeld || !orders.Present(f.Order) || f.Order.Paused {
		return false
	}
	if w.DeliveryID == orders.DeliveryID(f.Order) && orders.SameConfig(w.Config, f.Order.Config) {
		return false
	}
	return kernel.SameVersion(w.Config.KernelVersion, f.Release) && (len(f.OursLive()) == 0 || w.LoadedBy(f.Loaded))
}

// Kernel shows the modules in the kernel. It remembers their names until Changed.
type Kernel struct {
	host    host.Host
	present map[string]host.State
}

// NewKernel has looked at nothing yet.
func NewKernel(h host.Host) *Kernel { return &Kernel{host: h} }

// Changed forgets what was seen: a call was made.
func (k *Kernel) Changed() { k.present = nil }

// Seen are the modules as they were last seen, and their states; nil: not since the last change.
func (k *Kernel) Seen() map[string]host.State { return k.present }

// Present are the names of all modules in the kernel, and their states.
func (k *Kernel) Present() (map[string]host.State, error) {
	if k.present == nil {
		present, err := k.host.Modules()
		if err != nil {
			return nil, err
		}
		k.present = present
	}
	return k.present, nil
}

// Among identifies the set of all modules in the kernel.
func (k *Kernel) Among() (string, error) {
	present, err := k.Present()
	return orderhash.Digest(slices.Sorted(maps.Keys(present))), err
}

// See reads the facts of those modules that the kernel holds.
func (k *Kernel) See(names ...string) (map[string]host.Module, error) {
	present, err := k.Present()
	if err != nil {
		return nil, err
	}
	live := map[string]host.Module{}
	for _, n := range names {
		n = kmod.NormalizeName(n)
		if _, seen := live[n]; seen || present[n] == "" {
			continue
		}
		m, ok, err := k.host.Module(n)
		if err != nil {
			return nil, err
		}
		if ok {
			live[n] = m
		}
	}
	return live, nil
}

// Pauses between two looks at the checks of readyWhen. No event tells of what they look at.
const (
	UsableAgain = 10 * time.Second // UsableAgain: what can be used may stop to be so.
	// UnusableSoon and UnusableLong bound the pause while a check fails: a tenth of that time.
	UnusableSoon = 250 * time.Millisecond
	UnusableLong = 5 * time.Second
)

// Checks are what the checks of readyWhen said, by order.
type Checks map[orders.Key]checked

type checked struct {
	checks []v1beta1.ReadyCheck
	// failing is the first that did not pass, and is what the status names; none: all passed.
	failing host.Probe
	since   time.Time // since is when they began to fail.
}

func (c checked) passed() bool { return c.failing == host.Probe{} }

// Pause is how long until the checks have to be made again, at most most.
func (c Checks) Pause(now time.Time, most time.Duration) time.Duration {
	for _, was := range c {
		pause := UsableAgain
		if !was.passed() {
			pause = max(UnusableSoon, min(now.Sub(was.since)/10, UnusableLong))
		}
		most = min(most, pause)
	}
	return most
}

// Stand tells whether all checks say what they said.
func (c Checks) Stand(h host.Host) bool {
	for _, was := range c {
		if failing, _ := failing(h, was.checks); failing != was.failing {
			return false
		}
	}
	return true
}

// Check makes the checks of what is live for an order, also of an earlier form, and says which does
// not pass. before is what the last pass found.
func (c Checks) Check(h host.Host, f Facts, before Checks) *orders.Attempt {
	if !orders.Present(f.Order) || len(f.Order.ReadyWhen) == 0 || !f.Holds() {
		return nil
	}
	now := checked{checks: f.Order.ReadyWhen, since: f.Now}
	if was, ok := before[f.Key]; ok && !was.passed() {
		now.since = was.since
	}
	var found string
	now.failing, found = failing(h, now.checks)
	c[f.Key] = now
	if now.passed() {
		return nil
	}
	// The headline stays as it is while the check fails: what is there instead may change.
	a := orders.Waiting(v1beta1.ReasonNotUsable, "Module %s is live, but not ready: readyWhen asks for %s, and the node does not have that.",
		f.Loaded.Main, now.failing)
	if found != "" {
		a.Message += "\n" + found
	}
	return a
}

// failing is the first check that does not pass; none: all do.
func failing(h host.Host, checks []v1beta1.ReadyCheck) (failing host.Probe, found string) {
	for i := range checks {
		probe, ok := probeOf(&checks[i])
		if !ok {
			continue
		}
		if ok, found := h.Probe(probe); !ok {
			return probe, found
		}
	}
	return host.Probe{}, ""
}

// probeOf is what the node is asked for a check; commands are not for the node.
func probeOf(c *v1beta1.ReadyCheck) (host.Probe, bool) {
	switch {
	case c.DeviceNode != "":
		return host.Probe{DeviceNode: c.DeviceNode}, true
	case c.Sysfs != nil:
		return host.Probe{Sysfs: c.Sysfs.Path, Value: c.Sysfs.Value}, true
	}
	return host.Probe{}, false
}
