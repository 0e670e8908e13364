// SPDX-License-Identifier: Apache-2.0

// Package decide says what to do next about an order. It has no memory and no effects.
package decide

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

// Verb is the next step for one order.
type Verb string

// What to do next.
const (
	Rest    Verb = "rest"    // nothing now
	Import  Verb = "import"  // take over what the carrier has delivered, if it has
	Resolve Verb = "resolve" // find out what to load
	Load    Verb = "load"    // what the plan names and is not live; the rest is adopted
	Unload  Verb = "unload"  // what is ours
	Refresh Verb = "refresh" // note that the kernel is right under the order as it stands
	Forget  Verb = "forget"  // nothing of it is in the kernel any more
)

// Decision is the next step.
type Decision struct {
	Verb    Verb
	Attempt *orders.Attempt // what to report at Rest; nil: nothing
	Wake    time.Time       // when to decide again without a hint; zero: no such time
	Drifted bool            // the load repairs a module that went away
}

// rest says an attempt (nil: nothing) and waits until it is due.
func rest(a *orders.Attempt) Decision {
	d := Decision{Verb: Rest, Attempt: a}
	if a != nil {
		d.Wake = a.Next
	}
	return d
}

// Sequence are the keys of all that is ordered or loaded: unloads first, since they make room.
func Sequence(ordered map[orders.Key]*v1beta1.NodeModuleSpec, loaded map[orders.Key]*journal.Load) []orders.Key {
	all := sets.KeySet(ordered).Union(sets.KeySet(loaded))
	rank := func(k orders.Key) int {
		if orders.Absent(ordered[k]) {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b orders.Key) int {
		return cmp.Or(rank(a)-rank(b), a.Compare(b))
	})
}

// Next says what to do next about one order.
func Next(f observe.Facts) Decision {
	switch {
	case f.Order == nil:
		return unclaimed(f)
	case f.Order.Paused:
		return paused(f)
	case orders.Absent(f.Order):
		return absent(f)
	}
	return present(f)
}

// unclaimed keeps what no order names.
func unclaimed(f observe.Facts) Decision {
	if f.Loaded == nil {
		return rest(nil)
	}
	if !f.MainLive() && !f.Loaded.BuiltIn {
		return Decision{Verb: Forget}
	}
	return rest(&orders.Attempt{
		State: v1beta1.AttemptUnclaimed, Reason: v1beta1.ReasonUnclaimed,
		Message: "Loaded by this agent, and no order names it. It is kept. Apply the Module again to claim it; to unload it, delete the Module " +
			"after that.",
	})
}

// paused says what stands and touches nothing.
func paused(f observe.Facts) Decision {
	message := "Paused: nothing is loaded here until the annotation " + v1beta1.PausedAnnotation + " goes."
	switch {
	case orders.Absent(f.Order) && f.Loaded == nil:
		return absent(f) // an answer, not an act
	case orders.Absent(f.Order):
		message = "Paused: the module stays loaded until the annotation " + v1beta1.PausedAnnotation + " goes."
	case f.Satisfied():
		return rest(nil)
	case f.Loaded != nil && f.Loaded.Complete && !f.Loaded.BuiltIn && !f.MainLive():
		message = "Paused: module " + f.Loaded.Main + " went away and is not loaded again until the annotation " + v1beta1.PausedAnnotation +
			" goes."
	}
	a := orders.Waiting(v1beta1.ReasonPaused, "%s", message)
	if f.Hold != nil {
		a.Strikes, a.Strike = f.Hold.Strikes, f.Hold.Strike // other nodes still need to know
	}
	return rest(a)
}

func absent(f observe.Facts) Decision {
	if f.Loaded != nil {
		if len(f.OursLive()) == 0 {
			return Decision{Verb: Forget}
		}
		if f.Order.UnloadPolicy == v1beta1.UnloadOnReboot {
			return rest(rebootRequired(f.Loaded.Main, "leaves the kernel"))
		}
		if a := backOff(f, orderhash.Of(f.Order)); a != nil {
			return rest(a)
		}
		if d, waits := notReturned(f, f.Loaded.Main); waits {
			return d
		}
		return Decision{Verb: Unload}
	}
	message := "Not in the kernel."
	m, live := f.Live[f.Main()]
	other, needed := f.Journal.NeededBy(f.Key, f.Main())
	switch {
	case live && needed:
		message = "Module " + m.Name + " stays in the kernel: " + other.String() + " needs it."
	case live && !strings.Contains(m.Taint, "O"):
		message = "The kernel's own module " + m.Name + " is live; it is left alone."
	case live:
		message = "Module " + m.Name + " is in the kernel, but this agent did not load it; it is left alone."
	}
	return rest(&orders.Attempt{State: v1beta1.AttemptAbsent, Reason: f.Order.Reason, Message: message})
}

// notReturned tells whether a call for the module is on its way: nothing is tried before its end.
func notReturned(f observe.Facts, name string) (Decision, bool) {
	m, ok := f.Live[name]
	if !ok || m.State == host.StateLive {
		return Decision{}, false
	}
	return Decision{Verb: Rest, Wake: f.Now.Add(time.Second), Attempt: orders.NotReturned(m.Name)}, true
}

func present(f observe.Facts) Decision {
	if f.Satisfied() {
		if !apiequality.Semantic.DeepEqual(f.Loaded.Item, f.Order.ModuleItem) {
			return Decision{Verb: Refresh}
		}
		return rest(nil)
	}
	if !kernel.SameVersion(f.Order.Config.KernelVersion, f.Release) {
		return rest(orders.Waiting(v1beta1.ReasonWrongKernel, "The order is for kernel %s, and %s runs; the operator will renew it.",
			f.Order.Config.KernelVersion, f.Release))
	}
	if a := rolledBack(f); a != nil {
		return rest(a)
	}
	if a := backOff(f, orderhash.Of(f.Order), orders.CarrierHash(f.Order)); a != nil {
		return rest(a)
	}
	if d, waits := notReturned(f, f.Main()); waits {
		return d
	}
	if !f.Held {
		switch d := f.Order.Delivery; {
		case d == nil || f.Looked:
			return rest(nil) // without a word: the operator knows best that a delivery is on its way
		case d.CarrierUID == "": // it was told that the node's image holds it, and waits for this answer
			return rest(orders.Waiting(v1beta1.ReasonAwaitingDelivery, "The content of %s is not on this node.", f.Order.Config.ContainerImage))
		}
		return Decision{Verb: Import}
	}
	if a := unsupported(f); a != nil { // only now: its carrier has done its work and may go
		return rest(a)
	}
	if f.Plan == nil {
		return Decision{Verb: Resolve}
	}
	d := planned(f)
	if f.Unverified && d.Verb != Rest {
		return Decision{Verb: Resolve}
	}
	return d
}

// unsupported reports orders that this version cannot carry out.
func unsupported(f observe.Facts) *orders.Attempt {
	m := f.Order.Config.Modprobe
	switch {
	case modprobe.Wanted(&m) && !f.Modprobe:
		return orders.Failed(v1beta1.ReasonModprobeUnsupported, "modprobe.args and modprobe.rawArgs need kmod's modprobe, "+
			"and the image of this node's agent was built without it; use one with it, or moduleName and parameters.")
	case m.FirmwarePath != "" && !f.Firmware:
		return orders.Failed(v1beta1.ReasonUnsupported, "modprobe.firmwarePath needs a place for firmware, which this node does not have.")
	case m.ModprobedDir != "":
		return orders.Failed(v1beta1.ReasonUnsupported, "modprobe.modprobedDir is not supported: its files can have modprobe run any command "+
			"on the node. Use parameters in place of options, and modulesLoadingOrder in place of softdep.")
	case stray(&m) != "":
		return orders.Failed(v1beta1.ReasonUnsupported, "modprobe would read %q, which is outside of the image's directory (%s) and of "+
			"the host's /lib/modules; change modprobe.args, rawArgs, dirName or moduleName.", stray(&m), modprobe.Temp+"<dirName>")
	case m.ModuleName == "" && !modprobe.Raw(&m):
		return orders.Failed(v1beta1.ReasonUnsupported, "modprobe.moduleName is not set.")
	}
	return nil
}

// stray is what modprobe would read outside of the image and of the host's modules; empty: nothing.
func stray(m *v1beta1.ModprobeSpec) string {
	if !modprobe.Wanted(m) {
		return ""
	}
	return cmp.Or(modprobe.Strays(modprobe.LoadArgs(m)), modprobe.Strays(modprobe.UnloadArgs(m)))
}

// backOff is the last failure of the same order, while it is young.
func backOff(f observe.Facts, hashes ...string) *orders.Attempt {
	if f.Failure == nil || !slices.Contains(hashes, f.Failure.Hash) || !f.Now.Before(f.Failure.Attempt.Next) {
		return nil
	}
	a := f.Failure.Attempt
	return &a
}

// rebootRequired waits for the boot that the unload policy asks for.
func rebootRequired(name, what string) *orders.Attempt {
	return orders.Waiting(v1beta1.ReasonRebootRequired,
		"Module %s %s with the node's next boot, as unloadPolicy OnReboot asks; reboot the node, or set unloadPolicy to Wait.", name, what)
}

// withNote adds a sentence to the headline of a message, before the kernel's lines.
func withNote(message, note string) string {
	head, log, more := strings.Cut(message, "\n")
	if more {
		return head + note + "\n" + log
	}
	return head + note
}

// planned compares the kernel with what is to be loaded.
func planned(f observe.Facts) Decision {
	if other, ok := conflict(f); ok {
		return rest(orders.Failed(v1beta1.ReasonModuleConflict,
			"Module %s holds another build of %s on this node, for itself or for what it loads; there can be only one.", other, f.Plan.Main))
	}
	if f.Rival != nil {
		return rest(orders.Failed(v1beta1.ReasonModuleConflict, "Module %s asks for %s with other parameters on this node; there can be "+
			"only one. Give both the same modprobe.parameters, or select other nodes.", f.Rival, f.Plan.Main))
	}
	same := f.SameLoad()
	// Where modprobe's arguments do not tell the main module, only the end of the load does.
	told := f.Loaded != nil && (f.Loaded.Main != "" || f.Loaded.Complete)
	if same && told && (f.Loaded.BuiltIn || allLive(f)) {
		return Decision{Verb: Refresh}
	}
	// Before anything is unloaded for it, and before a load that began is tried again.
	if f.Plan.Hopeless != nil && !f.Order.SkipChecks {
		return rest(f.Plan.Hopeless)
	}
	if a := refused(f); a != nil {
		return rest(a)
	}
	if f.Hold != nil {
		return rest(f.Hold)
	}
	if same {
		// Gone although wanted, or the last agent ended in the middle of the load.
		return Decision{Verb: Load, Drifted: f.Loaded.Complete}
	}
	if len(f.OursLive()) > 0 {
		if f.Order.UnloadPolicy == v1beta1.UnloadOnReboot {
			return rest(rebootRequired(f.Loaded.Main, "is replaced"))
		}
		return Decision{Verb: Unload}
	}
	main, live := f.Live[f.Plan.Main]
	// Without an identity, what is there cannot be told from what is wanted.
	fits := f.Plan.MainStep().BuildID != "" && f.Plan.MainStep().Is(main)
	if live && !f.Plan.BuiltIn && !fits && !slices.Contains(f.InTree(), f.Plan.Main) {
		return rest(orders.Failed(v1beta1.ReasonAlreadyLoadedForeign,
			"Another build of %s (build ID %s) is in the kernel and was not loaded by this agent; it is not touched. "+
				"Unload it, or name it in inTreeModulesToRemove.", main.Name, cmp.Or(main.BuildID, "none")))
	}
	return Decision{Verb: Load}
}

// allLive: everything that the plan names is in the kernel, but for what the order works without.
func allLive(f observe.Facts) bool {
	for _, s := range f.Plan.Steps {
		m, ok := f.Live[s.Name]
		if !ok && !s.Optional || ok && s.Name == f.Plan.Main && !s.Is(m) {
			return false
		}
	}
	return true
}

// conflict finds another order that holds a different build of the main module.
func conflict(f observe.Facts) (orders.Key, bool) {
	for other, l := range f.Journal.Loaded {
		if m, ok := l.Module(f.Plan.Main); ok && other != f.Key && m.Ours && m.BuildID != f.Plan.MainStep().BuildID {
			return other, true
		}
	}
	return orders.Key{}, false
}

// refused finds what the kernel has said of a plan's builds already. A live dependency needs no
// call, unless the unload before the load takes it out.
func refused(f observe.Facts) *orders.Attempt {
	var leaving []journal.Module
	if !f.SameLoad() {
		leaving = f.OursLive()
	}
	for _, s := range f.Plan.Steps {
		r, ok := f.Journal.Refused[s.Build()]
		if !ok || s.Optional || !stands(r, f) {
			continue
		}
		stays := !slices.ContainsFunc(leaving, func(m journal.Module) bool { return m.Name == s.Name })
		if _, live := f.Live[s.Name]; live && stays && s.Name != f.Plan.Main {
			continue
		}
		return orders.Failed(r.Reason, "%s", withNote(r.Message, " Not tried again before the next boot, or another build or signature."))
	}
	return nil
}

// stands tells whether the kernel would give the same answer again.
func stands(r journal.Refusal, f observe.Facts) bool {
	return (r.Among == "" || r.Among == f.Among) && (r.Delivery == "" || r.Delivery == orders.DeliveryID(f.Order)) &&
		(r.Against == "" || isLive(f, r.Against))
}

func isLive(f observe.Facts, build string) bool {
	name, id, _ := strings.Cut(build, " ")
	m, live := f.Live[name]
	return live && orders.IdentityOf(m) == id
}

// rolledBack says why an order rests while the previous one serves.
func rolledBack(f observe.Facts) *orders.Attempt {
	failed, ok := f.Journal.RolledBack[f.Key]
	w := f.Journal.Worked[f.Key]
	if !ok || failed.Over(f.Now) || f.Previous || failed.Hash != orderhash.Of(f.Order) || w == nil || !w.LoadedBy(f.Loaded) ||
		!f.Loaded.Complete || !f.MainLive() {
		return nil
	}
	when := "before the next boot"
	if !failed.Until.IsZero() {
		when = "soon, for that takes the previous one out for a moment"
	}
	a := orders.Failed(v1beta1.ReasonRolledBack, "%s", withNote(failed.Message, fmt.Sprintf(
		" (%s) The previous build (%s) is loaded again, and this one is not tried again %s: mend the image or the Module.",
		failed.Reason, w.Config.ContainerImage, when)))
	a.Tries, a.Next = int32(min(failed.Times, math.MaxInt32)), failed.Until //nolint:gosec // bounded
	return a
}

// Vacant tells whether an order has nothing in the kernel: what it replaces may be put back.
func Vacant(f observe.Facts) bool {
	if !orders.Present(f.Order) || f.Order.Paused || f.Loaded != nil {
		return false
	}
	_, present := f.Live[f.Main()]
	return !present
}

// Over tells whether nothing of an order to unload is loaded any more: what was replaced is put
// back, if the agent ended, or its disk was full, when that was to be done.
func Over(f observe.Facts) bool {
	return orders.Absent(f.Order) && !f.Order.Paused && f.Loaded == nil
}

// RetryAsked tells whether another try is asked for, and there is something to do about it now.
func RetryAsked(f observe.Facts, retried *journal.Retried) bool {
	asked := f.Order != nil && f.Order.Retry != nil && !f.Order.Paused && f.Order.Retry.After(retried.Last[f.Key])
	return asked && (!retried.Heard[f.Key].Equal(f.Order.Retry.Time) || RetryReady(f))
}

// RetryReady tells whether it is known what a retry of the order has to forget.
func RetryReady(f observe.Facts) bool {
	return f.Plan != nil || orders.Absent(f.Order) || f.Satisfied()
}
