// SPDX-License-Identifier: Apache-2.0

// Package report says what the API is told: the status, and why an order is not carried out.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/place"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/orderhash"
	"github.com/drover-project/drover/internal/shared/words"
)

// Outcome is what stands about one order after it was decided and done.
type Outcome struct {
	Loaded   *journal.Load
	Live     bool            // Loaded is complete and in the kernel, or built in
	Unproved string          // the module of that name in the kernel, which has not been compared with the order yet
	Unusable bool            // live, and a check of readyWhen fails
	Attempt  *orders.Attempt // what is said of the order; nil: nothing
	Order    *v1beta1.NodeModuleSpec
}

// Of is what stands about an order. That it is unusable is said where there is nothing else to say.
func Of(f observe.Facts, a *orders.Attempt) Outcome {
	if a == nil {
		a = f.Unusable
	}
	if a == nil {
		a = notInForce(f)
	}
	if a == nil {
		a = kept(f)
	}
	return Outcome{Loaded: f.Loaded, Live: f.Holds(), Unproved: unproved(f), Unusable: f.Unusable != nil, Attempt: a, Order: f.Order}
}

// notInForce says which of an order's parameters what is live does not have; nil: it has them, as
// far as the kernel shows.
func notInForce(f observe.Facts) *orders.Attempt {
	if !orders.Present(f.Order) || !f.Holds() || f.Loaded.BuiltIn || f.Loaded.Kinds == nil {
		return nil
	}
	main := f.Live[f.Loaded.Main]
	var other, lacking []string
	for _, p := range f.Loaded.Config.Modprobe.Parameters {
		name := orders.ParameterName(p)
		_, want, _ := strings.Cut(p, "=")
		kind, known := f.Loaded.Kinds[name]
		shown, readable := main.Parameters[name]
		switch {
		case !known && !readable && !slices.Contains(ofAnyModule, name):
			lacking = append(lacking, name)
		case !f.Loaded.Adopted || !readable || kmod.SameValue(kind, want, shown):
		case slices.Contains(main.Private, name):
			other = append(other, name+" has another value")
		default:
			other = append(other, fmt.Sprintf("%s is %q, not %q", name, words.Clip(shown, maxValue), words.Clip(want, maxValue)))
		}
	}
	switch {
	case len(other) > 0:
		return orders.Waiting(v1beta1.ReasonParametersDiffer, "Module %s was live before its load, and keeps the parameters it had: %s. "+
			"Keep the node from loading it first, then reboot the node or unload %s there.", main.Name, words.List(other, maxNamedUsers), main.Name)
	case len(lacking) > 0:
		return orders.Waiting(v1beta1.ReasonParametersDiffer, "Module %s has no parameter %s, and the kernel has ignored it; correct "+
			"modprobe.parameters.", main.Name, words.List(lacking, maxNamedUsers))
	}
	return nil
}

// kept says which modules, that what is live needs, are live as another build than the one on disk;
// nil: none.
func kept(f observe.Facts) *orders.Attempt {
	if !orders.Present(f.Order) || !f.Holds() {
		return nil
	}
	var others []string
	for _, m := range f.Loaded.Modules {
		now, live := f.Live[m.Name]
		if !live || m.Name == f.Loaded.Main || m.Planned == "" || orders.IdentityOf(now) == m.Planned {
			continue
		}
		text := fmt.Sprintf("%s has build %s instead of %s", m.Name, cmp.Or(orders.IdentityOf(now), "none"), m.Planned)
		if user, shared := f.Journal.NeededBy(f.Key, m.Name); shared {
			text += ", and Module " + user.String() + " uses it, too"
		}
		others = append(others, text)
	}
	if len(others) == 0 {
		return nil
	}
	return orders.Waiting(v1beta1.ReasonDependencyKept, "Module %s is live with another build of what it needs: %s. A boot of the node loads "+
		"what the image has.", f.Loaded.Main, words.List(others, maxNamedUsers))
}

// maxValue bounds a value in a message.
const maxValue = 64

// ofAnyModule are parameters that the kernel takes for every module (kernel/module/main.c).
var ofAnyModule = []string{"dyndbg", "async_probe"}

// unproved is the module that an order names, while it is in the kernel, no load of it has been
// verified, and nothing speaks against its being what is ordered. A look at the delivery tells.
func unproved(f observe.Facts) string {
	if f.Loaded != nil && f.Loaded.Complete || !orders.Present(f.Order) {
		return ""
	}
	name := f.Main()
	m, ok := f.Live[name]
	if !ok || m.State != host.StateLive || f.Plan != nil && (f.Plan.MainStep().BuildID == "" || !f.Plan.MainStep().Is(m)) {
		return ""
	}
	return name
}

// Status computes the whole status. Times come from the journal, or from last if nothing changed.
func Status(bootID string, outcomes map[orders.Key]Outcome, artifacts map[string]string, last *v1beta1.NodeModulesConfigStatus,
	now time.Time) *v1beta1.NodeModulesConfigStatus {
	s := &v1beta1.NodeModulesConfigStatus{}
	for k, o := range outcomes {
		if o.Live {
			s.Modules = append(s.Modules, v1beta1.NodeModuleStatus{
				ModuleItem: o.Loaded.Item, Config: new(o.Loaded.Config), BootID: bootID,
				LastTransitionTime: o.Loaded.Since, Observed: o.observed(),
			})
		} else if told := reported(last, k, bootID, o.Unproved); told != nil {
			s.Modules = append(s.Modules, *told)
		}
		if o.Attempt != nil {
			s.Attempts = append(s.Attempts, attemptOf(k, o.Order, *o.Attempt, last, now))
		}
	}
	for id, digest := range artifacts {
		s.Artifacts = append(s.Artifacts, v1beta1.NodeArtifact{ID: id, Digest: digest})
	}
	sortStatus(s)
	bound(s)
	return s
}

// reported is what another operator has reported of an order in this boot, if it is about the
// module of that name. What it loaded is in use: labels and device plugins hang on its report, so
// that it stays until this agent can say the same, or something else, of its own knowledge.
func reported(last *v1beta1.NodeModulesConfigStatus, k orders.Key, bootID, module string) *v1beta1.NodeModuleStatus {
	i := slices.IndexFunc(last.Modules, func(m v1beta1.NodeModuleStatus) bool { return m.Namespace == k.Namespace && m.Name == k.Name })
	if module == "" || i < 0 {
		return nil
	}
	m := last.Modules[i]
	if m.Observed != nil || m.BootID != bootID || m.Config == nil || modprobe.Main(&m.Config.Modprobe) != module {
		return nil
	}
	return &m
}

// observed is what was seen at the load, what brought it, and whether it can be used now.
func (o Outcome) observed() *v1beta1.ObservedModule {
	if o.Loaded.Observed == nil {
		return nil
	}
	seen := *o.Loaded.Observed
	seen.Delivery, seen.Unusable = o.Loaded.DeliveryID, o.Unusable
	seen.Repairs, seen.LastRepair = o.Loaded.Repairs, o.Loaded.LastRepair
	return &seen
}

func attemptOf(k orders.Key, order *v1beta1.NodeModuleSpec, a orders.Attempt, last *v1beta1.NodeModulesConfigStatus,
	now time.Time) v1beta1.NodeModuleAttempt {
	entry := v1beta1.NodeModuleAttempt{
		Namespace: k.Namespace, Name: k.Name, State: a.State, Reason: a.Reason,
		Message: words.Cut(a.Message, maxMessage),
		Attempt: a.Tries, Strikes: a.Strikes, Strike: a.Strike, LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
	}
	// Half a name is another pod's.
	for _, h := range a.Holders {
		if len(h.Pod) <= maxHolder && len(h.UID) <= maxUID {
			entry.Holders, entry.HolderUIDs = append(entry.Holders, h.Pod), append(entry.HolderUIDs, h.UID)
		}
	}
	if order != nil {
		entry.Order = orderhash.WithPolicy(order)
	}
	if !a.Next.IsZero() {
		entry.NextRetry = new(metav1.NewTime(a.Next).Rfc3339Copy())
	}
	for _, old := range last.Attempts {
		if old.Namespace == k.Namespace && old.Name == k.Name && old.State == a.State && old.Reason == a.Reason {
			entry.LastTransitionTime = old.LastTransitionTime
		}
	}
	return entry
}

// NeedsWrite tells whether next says anything that last does not. A further failure is news only
// once what last says of it is outdated. Tidying is none: acknowledged orders that are gone and
// artifacts that are no longer needed leave with the next write that has another cause.
func NeedsWrite(last, next *v1beta1.NodeModulesConfigStatus, ordered func(orders.Key) bool, held map[string]string, now time.Time) bool {
	a, b := last.DeepCopy(), next.DeepCopy()
	a.Attempts = slices.DeleteFunc(a.Attempts, func(at v1beta1.NodeModuleAttempt) bool {
		return at.State == v1beta1.AttemptAbsent && !ordered(orders.Key{Namespace: at.Namespace, Name: at.Name})
	})
	a.Artifacts = slices.DeleteFunc(a.Artifacts, func(art v1beta1.NodeArtifact) bool {
		return held[art.ID] == art.Digest && !slices.Contains(b.Artifacts, art)
	})
	sortStatus(a)
	sortStatus(b)
	if !slices.EqualFunc(a.Attempts, b.Attempts, func(x, y v1beta1.NodeModuleAttempt) bool { return !outdated(x, y, now) }) {
		return true
	}
	for _, s := range []*v1beta1.NodeModulesConfigStatus{a, b} {
		for i := range s.Attempts {
			at := &s.Attempts[i]
			at.Message, _, _ = strings.Cut(at.Message, "\n")
			at.Attempt, at.NextRetry, at.LastTransitionTime = 0, nil, metav1.Time{}
		}
	}
	return !apiequality.Semantic.DeepEqual(a, b)
}

// outdated tells whether the count of tries has misled readers for long: so there is at most one
// such write in orders.RetryMax.
func outdated(last, next v1beta1.NodeModuleAttempt, now time.Time) bool {
	return last.Attempt != next.Attempt && last.NextRetry != nil && now.Sub(last.NextRetry.Time) >= orders.RetryMax
}

func sortStatus(s *v1beta1.NodeModulesConfigStatus) {
	slices.SortFunc(s.Modules, func(a, b v1beta1.NodeModuleStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Attempts, func(a, b v1beta1.NodeModuleAttempt) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Artifacts, func(a, b v1beta1.NodeArtifact) int { return strings.Compare(a.ID, b.ID) })
}

// Bounds of the NodeModulesConfig's schema: the API refuses a status as a whole.
const (
	MaxModules   = 512
	MaxAttempts  = 1024
	MaxArtifacts = 2048

	maxBuild      = 1024
	maxBuildID    = 128
	maxSrcVersion = 64
	maxTaint      = 64
	maxHolder     = 317
	maxUID        = 36
	maxMessage    = 2000 // fewer than the schema takes
	maxHolders    = 16   // pods that an attempt names
	// maxParameters and maxParameter are fewer than the schema takes: there is room for others.
	maxParameters = 8 << 10
	maxParameter  = 1024
)

// bound cuts a sorted status to what the API takes.
func bound(s *v1beta1.NodeModulesConfigStatus) {
	s.Modules = first(s.Modules, MaxModules)
	s.Attempts = first(s.Attempts, MaxAttempts)
	s.Artifacts = first(s.Artifacts, MaxArtifacts)
	for i := range s.Modules {
		if seen := s.Modules[i].Observed; seen != nil {
			seen.BuildID = words.Fit(seen.BuildID, maxBuildID)
			seen.SrcVersion, seen.Taint = words.Fit(seen.SrcVersion, maxSrcVersion), words.Fit(seen.Taint, maxTaint)
			seen.Parameters = boundParameters(seen.Parameters)
		}
	}
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Strike != nil {
			a.Strike.Build = words.Fit(a.Strike.Build, maxBuild)
		}
	}
}

func first[T any](all []T, most int) []T { return all[:min(len(all), most)] }

// boundParameters are the first by name that fit.
func boundParameters(all map[string]string) map[string]string {
	size, cut := 0, false
	for name, value := range all {
		size += len(name) + len(value)
		cut = cut || len(value) > maxParameter
	}
	if size <= maxParameters && !cut {
		return all
	}
	kept, left := map[string]string{}, maxParameters
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := words.Fit(all[name], maxParameter)
		if left -= len(name) + len(value); left < 0 {
			break
		}
		kept[name] = value
	}
	return kept
}

// Remark adds what keeps an order waiting to an attempt that says nothing of it: carriers cannot
// come, or the memory is not as it should be, foreign being why the record is not believed (told).
func Remark(f observe.Facts, a *orders.Attempt, where place.Findings, foreign error) (said *orders.Attempt, told bool) {
	switch {
	case !orders.Present(f.Order) || f.Order.Paused || f.Satisfied():
		return a, false
	case !f.Held && where.NoDelivery != "":
		return orders.Failed(v1beta1.ReasonAgentFailed, "No delivery can arrive: %s", where.NoDelivery), false
	case a != nil:
		return a, false
	case foreign != nil:
		return RecordForeign(foreign), true
	case !f.Held && where.Forgets != "":
		return orders.Waiting(v1beta1.ReasonAwaitingDelivery, "Every boot needs a new delivery: %s", where.Forgets), false
	}
	return nil, false
}

// RecordForeign says why a record was not believed.
func RecordForeign(why error) *orders.Attempt {
	return orders.Waiting(v1beta1.ReasonRecordForeign,
		"Nothing was loaded from the agent's record of earlier orders: %v. The orders of this cluster are carried out.", why)
}

// Idle is said while there is no place for the agent's memory: without the fuse, nothing is loaded.
func Idle(f observe.Facts, why string) Outcome {
	if f.Order == nil || !orders.Absent(f.Order) && f.Satisfied() {
		return Of(f, nil)
	}
	return Of(f, orders.Failed(v1beta1.ReasonAgentFailed, "Nothing is loaded or unloaded: %s", why))
}

// Drifted says that what is wanted goes out of the kernel. It is the same at each repair.
func Drifted(l *journal.Load) *orders.Attempt {
	return orders.Waiting(v1beta1.ReasonDrifted,
		"Module %s goes out of the kernel although it is wanted; it is loaded again. Find out what unloads it.", l.Main)
}

// Recurring is Drifted from the second repair until the module has stayed for orders.RetryForget;
// nil: it does not recur. It is said of what is live: few looks find the module gone.
func Recurring(l *journal.Load, now time.Time) *orders.Attempt {
	if l.Repairs < 2 || l.LastRepair == nil || now.Sub(l.LastRepair.Time) >= orders.RetryForget {
		return nil
	}
	return Drifted(l)
}
