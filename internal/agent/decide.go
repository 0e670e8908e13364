// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/modprobe"
)

// facts are everything a decision about one order depends on.
type facts struct {
	task
	// order is nil when no entry names what was loaded.
	order *v1beta1.NodeModuleSpec
	// loaded is nil when the agent loaded nothing for this order in this boot.
	loaded *loaded
	// live are the modules in the kernel, of those that matter here.
	live map[string]host.Module
	// among identifies the set of all modules in the kernel.
	among string
	// release of the running kernel.
	release string
	// firmware can be staged on this node, and kmod's modprobe be run.
	firmware, modprobe bool
	// held tells whether the store has the wanted delivery.
	held bool
	// previousHeld tells whether the store has the delivery of the last order that worked.
	previousHeld bool
	// looked tells that the carrier was looked at in this pass and had not delivered yet.
	looked bool
	// plan is what to load; nil until resolved.
	plan *plan
	// unverified: the plan is of an earlier pass.
	unverified bool
	// hold is why the fuse keeps the plan from being loaded; nil: it does not.
	hold *report
	// unusable is why what is live is not ready; nil: it is, or nothing is.
	unusable *report
	// retry is the memory of failures; nil when there were none.
	retry *retry
	// journal tells what other orders hold.
	journal *journal
	now     time.Time
}

// verb is the next step for one order.
type verb string

const (
	// verbRest: nothing to do now.
	verbRest verb = "rest"
	// verbImport: look whether the carrier has delivered, and import.
	verbImport verb = "import"
	// verbResolve: find out what to load.
	verbResolve verb = "resolve"
	// verbLoad: load what the plan names and is not live; what is live already is adopted.
	verbLoad verb = "load"
	// verbUnload: unload what is ours.
	verbUnload verb = "unload"
	// verbRefresh: the kernel is right; note that it is so under the order as it stands.
	verbRefresh verb = "refresh"
	// verbForget: nothing of it is in the kernel any more.
	verbForget verb = "forget"
)

// decision is the next step and, for verbRest, what to report.
type decision struct {
	verb verb
	// report is what attempts shall say; nil: nothing.
	report *report
	// wake is when to decide again without a hint; zero: no such time.
	wake time.Time
	// drifted: the load repairs a module that went away.
	drifted bool
}

// report is an entry of status.attempts without its times.
type report struct {
	State   v1beta1.AttemptState
	Reason  string
	Message string
	Attempt int32
	Next    time.Time
	// Holders are pods that use what shall go.
	Holders []string
	// Strikes and the last of them, where the fuse holds a build back.
	Strikes int32
	Strike  *v1beta1.Strike
}

// decide says what to do next about one order. It has no memory and no effects.
func decide(f facts) decision {
	switch {
	case f.order == nil:
		return decideUnclaimed(f)
	case f.order.Paused:
		return decidePaused(f)
	case absentOrder(f):
		return decideAbsent(f)
	}
	return decidePresent(f)
}

// decideUnclaimed keeps what no order names.
func decideUnclaimed(f facts) decision {
	if f.loaded == nil {
		return decision{verb: verbRest}
	}
	if !f.mainLive() && !f.loaded.BuiltIn {
		return decision{verb: verbForget}
	}
	return decision{verb: verbRest, report: &report{
		State: v1beta1.AttemptUnclaimed, Reason: v1beta1.ReasonUnclaimed,
		Message: "Loaded by this agent, and no order names it. It is kept. Apply the Module again to claim it; to unload it, delete the Module after that.",
	}}
}

// decidePaused says what stands and touches nothing.
func decidePaused(f facts) decision {
	message := "Paused: nothing is loaded here until the annotation " + v1beta1.PausedAnnotation + " goes."
	switch {
	case absentOrder(f) && f.loaded == nil:
		return decideAbsent(f) // an answer, not an act
	case absentOrder(f):
		message = "Paused: what shall go stays in the kernel until the annotation " + v1beta1.PausedAnnotation + " goes."
	case f.satisfied():
		return decision{verb: verbRest}
	case f.loaded != nil && f.loaded.Complete && !f.loaded.BuiltIn && !f.mainLive():
		message = fmt.Sprintf("Paused: module %s went away and is not loaded again until the annotation %s goes.", f.loaded.Main, v1beta1.PausedAnnotation)
	}
	r := &report{State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonPaused, Message: message}
	if f.hold != nil {
		r.Strikes, r.Strike = f.hold.Strikes, f.hold.Strike // other nodes still need to know
	}
	return decision{verb: verbRest, report: r}
}

func absentOrder(f facts) bool { return f.order != nil && f.order.State == v1beta1.NodeModuleAbsent }

func decideAbsent(f facts) decision {
	if f.loaded != nil {
		if len(f.oursLive()) == 0 {
			return decision{verb: verbForget}
		}
		if f.order.UnloadPolicy == v1beta1.UnloadOnReboot {
			return decision{verb: verbRest, report: rebootRequired(f.loaded.Main, "leaves the kernel")}
		}
		if d, wait := f.backOff(f.orderHash()); wait {
			return d
		}
		return decision{verb: verbUnload}
	}
	message := "Not in the kernel."
	m, live := f.live[f.mainName()]
	other, needed := f.journal.neededBy(f.key, f.mainName())
	switch {
	case live && needed:
		message = fmt.Sprintf("Module %s stays in the kernel: %s needs it.", m.Name, other)
	case live:
		message = fmt.Sprintf("Module %s is in the kernel, but this agent did not load it; it is left alone.", m.Name)
	}
	return decision{verb: verbRest, report: &report{State: v1beta1.AttemptAbsent, Reason: f.order.Reason, Message: message}}
}

func decidePresent(f facts) decision {
	if f.satisfied() {
		if !apiequality.Semantic.DeepEqual(f.loaded.Item, f.order.ModuleItem) {
			return decision{verb: verbRefresh}
		}
		return decision{verb: verbRest}
	}
	if !sameKernel(f.order.Config.KernelVersion, f.release) {
		return decision{verb: verbRest, report: &report{
			State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonWrongKernel,
			Message: fmt.Sprintf("The order is for kernel %s, and %s runs; the operator will renew it.", f.order.Config.KernelVersion, f.release),
		}}
	}
	if r := f.rolledBack(); r != nil {
		return decision{verb: verbRest, report: r, wake: r.Next}
	}
	if d, wait := f.backOff(f.orderHash(), f.carrierHash()); wait {
		return d
	}
	if m, ok := f.live[f.mainName()]; ok && m.State != host.StateLive {
		return decision{verb: verbRest, wake: f.now.Add(time.Second), report: &report{
			State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonTimeout,
			Message: fmt.Sprintf("Module %s is in the kernel and its init or exit function has not returned.", m.Name),
		}}
	}
	if !f.held {
		return decideDelivery(f)
	}
	if r := f.unsupported(); r != nil { // only now: its carrier has done its work and may go
		return decision{verb: verbRest, report: r}
	}
	if f.plan == nil {
		return decision{verb: verbResolve}
	}
	d := decidePlan(f)
	if f.unverified && d.verb != verbRest {
		return decision{verb: verbResolve}
	}
	return d
}

// decideDelivery waits without a word: the operator knows best that a delivery is on its way.
func decideDelivery(f facts) decision {
	switch {
	case f.order.Delivery == nil, f.order.Delivery.CarrierUID == "":
		return decision{verb: verbRest}
	case f.looked:
		return decision{verb: verbRest} // and look again soon
	}
	return decision{verb: verbImport}
}

// decidePlan compares the kernel with what is to be loaded.
func decidePlan(f facts) decision {
	if other, ok := f.conflict(); ok {
		return decision{verb: verbRest, report: &report{
			State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonModuleConflict,
			Message: fmt.Sprintf("Module %s holds another build of %s on this node, for itself or for what it loads; there can be only one.", other, f.plan.Main),
		}}
	}
	same := f.sameLoad()
	if same && (f.loaded.BuiltIn || f.allLive()) {
		return decision{verb: verbRefresh}
	}
	// Before anything is unloaded for it; and what is missing of a load that could not be taken back is not tried again either.
	if f.plan.hopeless != nil && !f.order.SkipChecks {
		return decision{verb: verbRest, report: f.plan.hopeless}
	}
	if r := f.refused(); r != nil {
		return decision{verb: verbRest, report: r}
	}
	if f.hold != nil {
		return decision{verb: verbRest, report: f.hold, wake: f.hold.Next}
	}
	if same {
		// Gone although wanted, or the last agent ended in the middle of the load.
		return decision{verb: verbLoad, drifted: f.loaded.Complete}
	}
	if len(f.oursLive()) > 0 {
		if f.order.UnloadPolicy == v1beta1.UnloadOnReboot {
			return decision{verb: verbRest, report: rebootRequired(f.loaded.Main, "is replaced")}
		}
		return decision{verb: verbUnload}
	}
	main, live := f.live[f.plan.Main]
	// Without an identity, what is there cannot be told from what is wanted.
	fits := f.plan.main().BuildID != "" && f.plan.main().is(main)
	if live && !f.plan.BuiltIn && !fits && !slices.Contains(f.inTree(), f.plan.Main) {
		return decision{verb: verbRest, report: &report{
			State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonAlreadyLoadedForeign,
			Message: fmt.Sprintf("Another build of %s (build ID %s) is in the kernel and was not loaded by this agent; it is not touched. "+
				"Unload it, or name it in inTreeModulesToRemove.", main.Name, orNone(main.BuildID)),
		}}
	}
	return decision{verb: verbLoad}
}

// unsupported reports orders that this version cannot carry out.
func (f facts) unsupported() *report {
	m := f.order.Config.Modprobe
	failed := func(reason, message string) *report {
		return &report{State: v1beta1.AttemptFailed, Reason: reason, Message: message}
	}
	switch {
	case modprobe.Wanted(&m) && !f.modprobe:
		return failed(v1beta1.ReasonModprobeUnsupported,
			"modprobe.args and modprobe.rawArgs need kmod's modprobe, and the image of this node's agent was built without it; use one with it, or moduleName and parameters.")
	case m.FirmwarePath != "" && !f.firmware:
		return failed(v1beta1.ReasonUnsupported, "modprobe.firmwarePath needs a place for firmware, which this node does not have.")
	case m.ModprobedDir != "":
		return failed(v1beta1.ReasonUnsupported, "modprobe.modprobedDir is not supported: its files can have modprobe run any command on the node. "+
			"Use parameters in place of options, and modulesLoadingOrder in place of softdep.")
	case m.ModuleName == "" && !modprobe.Raw(&m):
		return failed(v1beta1.ReasonUnsupported, "modprobe.moduleName is not set.")
	}
	return nil
}

// satisfied: what this very order brought in is live.
func (f facts) satisfied() bool {
	l := f.loaded
	return l != nil && l.Complete && l.DeliveryID == deliveryID(f.order) &&
		apiequality.Semantic.DeepEqual(l.Config, f.order.Config) && (l.BuiltIn || f.mainLive())
}

// sameLoad: what was loaded for this order is what the plan names, with the same parameters.
func (f facts) sameLoad() bool {
	if f.loaded == nil || f.loaded.Main != f.plan.Main || f.loaded.BuiltIn != f.plan.BuiltIn ||
		!sameEffect(f.loaded.Config.Modprobe, f.order.Config.Modprobe) {
		return false
	}
	for _, s := range f.plan.Steps {
		m, ok := f.loaded.module(s.Name)
		if ok && (m.Planned != s.BuildID || m.Content != s.Content) || !ok && s.Name == f.plan.Main {
			return false
		}
	}
	return true
}

// allLive: everything that the plan names is in the kernel, but for what the order works without.
func (f facts) allLive() bool {
	for _, s := range f.plan.Steps {
		m, ok := f.live[s.Name]
		if !ok && !s.Optional || ok && s.Name == f.plan.Main && !s.is(m) {
			return false
		}
	}
	return true
}

func (f facts) mainLive() bool {
	m, _ := f.loaded.module(f.loaded.Main)
	l, ok := f.live[f.loaded.Main]
	return ok && l.State == host.StateLive && sameBuild(l, m.BuildID)
}

// oursLive are the modules, last loaded first, that an unload would take out: loaded for this order, still the same
// build, and counted on by no other order.
func (f facts) oursLive() []loadedModule {
	if f.loaded == nil {
		return nil
	}
	var ours []loadedModule
	for _, m := range slices.Backward(f.loaded.Modules) {
		if l, ok := f.live[m.Name]; ok && m.Ours && sameBuild(l, m.BuildID) && !f.needed(m.Name) {
			ours = append(ours, m)
		}
	}
	return ours
}

// needed tells whether another order counts on the module.
func (f facts) needed(name string) bool {
	_, ok := f.journal.neededBy(f.key, name)
	return ok
}

// conflict finds another order that holds a different build of the main module.
func (f facts) conflict() (key, bool) {
	for other, l := range f.journal.Loaded {
		if m, ok := l.module(f.plan.Main); ok && other != f.key && m.Ours && m.BuildID != f.plan.main().BuildID {
			return other, true
		}
	}
	return key{}, false
}

// backOff rests while a failure of the same order is young.
func (f facts) backOff(hashes ...string) (decision, bool) {
	if f.retry == nil || !slices.Contains(hashes, f.retry.hash) || !f.now.Before(f.retry.report.Next) {
		return decision{}, false
	}
	r := f.retry.report
	return decision{verb: verbRest, report: &r, wake: r.Next}, true
}

// rebootRequired waits for the boot that the unload policy asks for.
func rebootRequired(name, what string) *report {
	return &report{
		State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonRebootRequired,
		Message: fmt.Sprintf("Module %s %s with the node's next boot, as unloadPolicy OnReboot asks; reboot the node, or set unloadPolicy to Wait.", name, what),
	}
}

func (f facts) mainName() string { return modprobe.Main(&f.order.Config.Modprobe) }

func (f facts) inTree() []string { return inTree(f.order.Config) }

// parameters go to the module that the order names.
func (f facts) parameters(name string) []string {
	if name != f.plan.Main {
		return nil
	}
	return f.order.Config.Modprobe.Parameters
}
