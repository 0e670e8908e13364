// SPDX-License-Identifier: Apache-2.0

// Package execute carries out what was decided about an order: it takes deliveries over, makes
// plans, loads, unloads and rolls back. The journal says what it begins before the kernel is
// called.
package execute

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/blacklist"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
	"github.com/drover-project/drover/internal/agent/watchdog"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

// Parts are what an Executor works with.
type Parts struct {
	Host      host.Host
	Store     Store
	Firmware  *firmware.Stage  // nil: orders with firmware are refused
	Blacklist *blacklist.Files // nil: the host may load what orders replace, and attempts say so
	Modprobe  Modprobe         // nil: orders with arguments for modprobe are refused
	Fuse      *fuse.Fuse       // nil: every boot loads builds that may have taken the node down
	Clock     clock.WithTicker
	Watchdog  *watchdog.Watchdog // is told of each step; may be nil
}

// Store keeps the content of deliveries on the node, as package store does.
type Store interface {
	Import(ctx context.Context, id string, carrier types.UID) (digest string, err error)
	Delivered(carrier types.UID) bool
	Open(id string) (fs.FS, error)
	Held() (map[string]string, error)
	Baked() (map[string]string, error)
	Retain(keep []string) error
}

// Modprobe runs kmod's modprobe for orders with arguments for it.
type Modprobe interface {
	// Modprobe makes one call. Errors are those of host.Host's calls, or what the program said.
	Modprobe(ctx context.Context, r host.ModprobeRequest) error
	// ModprobeRunning tells whether a call that was left behind may still load something.
	ModprobeRunning() bool
}

// Memory is what is remembered from pass to pass, on disk and in the process.
type Memory struct {
	Journal *journal.Journal
	Retried *journal.Retried
	Checks  observe.Checks // of readyWhen, as they were in the last pass

	failures map[orders.Task]*orders.Failure
	// plans that were made before, by the hash of the order. The delivery may be damaged since:
	// they are good for decisions, and made anew, which verifies it, before a load.
	plans       map[orders.Task]knownPlan
	judged      string // the boot that the fuse was told of
	tidied      bool   // firmware of orders that are gone was removed since the start
	nextRefused map[orders.Key]nextRefused
	stuck       map[string]stuck  // modules that the kernel kept, until they leave or the node boots
	searches    map[string]search // for users of modules that have to leave
}

type knownPlan struct {
	hash string
	plan *plan.Plan
}

// nextRefused is a carrier whose output could not be used ahead of the order that will need it.
type nextRefused struct {
	carrier types.UID
	attempt *orders.Attempt
}

// NewMemory remembers only what is on disk.
func NewMemory(j *journal.Journal, r *journal.Retried) *Memory {
	return &Memory{Journal: j, Retried: r, nextRefused: map[orders.Key]nextRefused{}}
}

// Executor carries out the orders of one pass.
type Executor struct {
	Parts
	*Memory
	Orders  map[orders.Key]*v1beta1.NodeModuleSpec
	BootID  string
	Held    map[string]string // the digests of deliveries
	Kernel  *observe.Kernel
	Checked observe.Checks // of readyWhen, in this pass
	Ending  func() bool    // the agent was told to stop: no further call is begun

	made      map[orders.Task]*plan.Plan // in this pass
	looked    map[orders.Key]bool        // orders whose carrier had not delivered
	ahead     map[types.UID]bool         // carriers of next orders that had not
	reloading map[orders.Key]bool        // something was unloaded to load something else
	counted   map[string]int             // references that are not of holders, before the first call of a change
}

// New begins a pass over the orders of spec. What m remembers of another boot is forgotten.
func New(parts Parts, m *Memory, spec v1beta1.NodeModulesConfigSpec) (*Executor, error) {
	e := &Executor{
		Parts: parts, Memory: m, Orders: map[orders.Key]*v1beta1.NodeModuleSpec{}, Kernel: observe.NewKernel(parts.Host),
		Checked: observe.Checks{}, Ending: func() bool { return false }, made: map[orders.Task]*plan.Plan{},
		looked: map[orders.Key]bool{}, ahead: map[types.UID]bool{}, reloading: map[orders.Key]bool{}, counted: map[string]int{},
	}
	for i := range spec.Modules {
		e.Orders[orders.KeyOf(&spec.Modules[i])] = &spec.Modules[i]
	}
	var err error
	if e.BootID, err = e.Host.BootID(); err != nil {
		return nil, err
	}
	if e.Held, err = e.Store.Held(); err != nil {
		return nil, err
	}
	if m.Journal.Begin(e.BootID) || m.failures == nil {
		m.failures, m.plans = map[orders.Task]*orders.Failure{}, map[orders.Task]knownPlan{}
		m.stuck, m.searches = map[string]stuck{}, map[string]search{}
	}
	maps.DeleteFunc(m.plans, func(t orders.Task, _ knownPlan) bool { return e.Orders[t.Key] == nil })
	return e, nil
}

// Facts reads what a decision about one order depends on.
func (e *Executor) Facts(t orders.Task) (observe.Facts, error) {
	f := observe.Facts{
		Task: t, Order: e.Orders[t.Key], Loaded: e.Journal.Loaded[t.Key], Journal: e.Journal,
		Release: e.Host.Release(), Looked: e.looked[t.Key], Plan: e.made[t], Failure: e.failures[t], Now: e.Clock.Now(),
		Firmware: e.Firmware != nil, Modprobe: e.Modprobe != nil,
	}
	if w := e.Journal.Worked[t.Key]; w != nil {
		_, f.PreviousHeld = e.Held[w.DeliveryID]
		if t.Previous {
			f.Order = w.Order(f.Order)
		}
	}
	if f.Order != nil {
		_, f.Held = e.Held[orders.DeliveryID(f.Order)]
		if known := e.plans[t]; f.Plan == nil && known.plan != nil && known.hash == orderhash.Of(f.Order) {
			f.Plan, f.Unverified = known.plan, true
		}
	}
	var err error
	if f.Live, err = e.Kernel.See(f.Names()...); err != nil {
		return f, err
	}
	f.Rival = e.rival(f)
	if f.Hold, err = e.hold(f); err != nil {
		return f, err
	}
	f.Unusable = e.Checked.Check(e.Host, f, e.Checks)
	if len(e.Journal.Refused) > 0 {
		if f.Among, err = e.Kernel.Among(); err != nil {
			return f, err
		}
	}
	if f.Failure != nil && f.Failure.Needs != "" && e.Kernel.Seen()[kmod.NormalizeName(f.Failure.Needs)] == host.StateLive {
		f.Failure = nil // what it waited for has come
	}
	return f, nil
}

// rival finds another order that asks for the same module with other parameters, and has it or
// comes first.
func (e *Executor) rival(f observe.Facts) *orders.Key {
	if !orders.Present(f.Order) {
		return nil
	}
	effect := func(o *v1beta1.NodeModuleSpec) v1beta1.ModprobeSpec { return o.Config.Modprobe }
	for _, k := range slices.SortedFunc(maps.Keys(e.Orders), orders.Key.Compare) {
		other := e.Orders[k]
		if k == f.Key || !orders.Present(other) || modprobe.Main(&other.Config.Modprobe) != f.Main() ||
			!kernel.SameVersion(other.Config.KernelVersion, f.Release) || observe.SameEffect(effect(other), effect(f.Order)) {
			continue
		}
		has, ours := e.Journal.Loaded[k], e.Journal.Loaded[f.Key]
		if has != nil && has.Complete || (ours == nil || !ours.Complete) && k.Compare(f.Key) < 0 {
			return &k
		}
	}
	return nil
}

// lookAgain reads anew what is loaded for an order, and what is live of it.
func (e *Executor) lookAgain(f observe.Facts) (observe.Facts, error) {
	var err error
	f.Loaded = e.Journal.Loaded[f.Key]
	f.Live, err = e.Kernel.See(f.Names()...)
	return f, err
}

func (e *Executor) fail(ctx context.Context, f observe.Facts, hash string, a *orders.Attempt) {
	e.failures[f.Task] = e.failures[f.Task].Again(hash, e.Clock.Now(), *a)
	klog.FromContext(ctx).Info("Order not fulfilled", "module", f.Key.String(), "state", a.State, "reason", a.Reason,
		"message", a.Message, "attempt", e.failures[f.Task].Attempt.Tries, "previous", f.Previous)
}

// shows reports whether the kernel has the parameters that are ordered, and no others were set.
func shows(live map[string]string, before, ordered []string) bool {
	named := map[string]bool{}
	for _, p := range ordered {
		name, value, _ := strings.Cut(p, "=")
		named[name] = true
		if now, readable := live[name]; !readable || now != value {
			return false
		}
	}
	return !slices.ContainsFunc(before, func(p string) bool {
		name, _, _ := strings.Cut(p, "=")
		return !named[name]
	})
}

// wrap says what failed; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// now is the time of day, as precisely as the API keeps it.
func (e *Executor) now() metav1.Time { return metav1.NewTime(e.Clock.Now()).Rfc3339Copy() }

// Restore takes up what the last status says, where the journal was lost and the kernel agrees. A
// status may be from before a reload with other parameters. It is, if the kernel has those that are
// ordered now: then nothing is unloaded to load the same again.
func (e *Executor) Restore(last *v1beta1.NodeModulesConfigStatus) error {
	for _, m := range last.Modules {
		k := orders.Key{Namespace: m.Namespace, Name: m.Name}
		config := ptr.Deref(m.Config, v1beta1.ModuleConfig{})
		main := modprobe.Main(&config.Modprobe)
		if e.Journal.Loaded[k] != nil || m.BootID != e.BootID || m.Observed == nil || m.Observed.BuiltIn {
			continue
		}
		live, err := e.Kernel.See(main)
		if err != nil {
			return err
		}
		id := orders.Identity(m.Observed.BuildID, m.Observed.SrcVersion)
		if now, ok := live[main]; !ok || now.State != host.StateLive || id == "" || orders.IdentityOf(now) != id {
			continue
		}
		if o := e.Orders[k]; o != nil && shows(live[main].Parameters, config.Modprobe.Parameters, o.Config.Modprobe.Parameters) {
			config.Modprobe.Parameters = o.Config.Modprobe.Parameters
		}
		e.Journal.Loaded[k] = &journal.Load{
			Item: m.ModuleItem, Config: config, Complete: true, Main: main,
			Modules: []journal.Module{{Name: main, BuildID: id, Planned: id, Ours: true}},
			Began:   ptr.Deref(m.Observed.LoadBegan, metav1.Time{}), Since: m.LastTransitionTime,
			Observed: m.Observed, DeliveryID: m.Observed.Delivery, Repairs: m.Observed.Repairs, LastRepair: m.Observed.LastRepair,
		}
	}
	return nil
}
