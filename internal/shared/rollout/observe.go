// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/orderhash"
	"github.com/drover-project/drover/internal/shared/placement"
)

// Entry is one Module's part of a NodeModulesConfig. What is not there is nil.
type Entry struct {
	Order     *v1beta1.NodeModuleSpec
	Live      *v1beta1.NodeModuleStatus
	Attempt   *v1beta1.NodeModuleAttempt
	Artifacts []v1beta1.NodeArtifact // the deliveries that the node holds, of all Modules
}

// EntryOf finds a Module's part of a NodeModulesConfig, which may be nil.
func EntryOf(config *v1beta1.NodeModulesConfig, module types.NamespacedName) Entry {
	if config == nil {
		return Entry{}
	}
	is := func(namespace, name string) bool { return namespace == module.Namespace && name == module.Name }
	return Entry{
		Order:     find(config.Spec.Modules, func(o *v1beta1.NodeModuleSpec) bool { return is(o.Namespace, o.Name) }),
		Live:      find(config.Status.Modules, func(s *v1beta1.NodeModuleStatus) bool { return is(s.Namespace, s.Name) }),
		Attempt:   find(config.Status.Attempts, func(a *v1beta1.NodeModuleAttempt) bool { return is(a.Namespace, a.Name) }),
		Artifacts: config.Status.Artifacts,
	}
}

func find[T any](all []T, is func(*T) bool) *T {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// Holds reports whether the node has got a delivery.
func (e Entry) Holds(delivery string) bool {
	return slices.ContainsFunc(e.Artifacts, func(a v1beta1.NodeArtifact) bool { return a.ID == delivery })
}

// IsLive reports whether the agent saw the kernel module in the kernel in the node's current boot.
func (e Entry) IsLive(node *corev1.Node) bool {
	return e.Live != nil && e.Live.BootID != "" && e.Live.BootID == node.Status.NodeInfo.BootID
}

// Differs reports whether the agent saw another build live than is ordered, or the same by another
// delivery: an image that was built again under its name.
func (e Entry) Differs() bool {
	if e.Live == nil || e.Live.Observed == nil || e.Order == nil || e.Order.Delivery == nil {
		return false
	}
	by := e.Live.Observed.Delivery
	return !SameBuild(e.Live.Config, &e.Order.Config) || by != "" && by != e.Order.Delivery.ID
}

// outdated: the agent has said what came of an earlier order, and nothing of this one yet.
func (e Entry) outdated() bool {
	return e.Attempt != nil && e.Attempt.Order != "" && e.Order != nil && e.Attempt.Order != orderhash.WithPolicy(e.Order)
}

// Stays reports whether what is live, another build than is ordered, is to stay until the next boot
// or until another order comes.
func (e Entry) Stays() bool {
	switch {
	case e.Order == nil:
		return false
	case e.Order.UnloadPolicy == v1beta1.UnloadOnReboot, e.Order.Paused:
		return true
	case e.Attempt == nil || e.Attempt.Order == "" || e.outdated():
		return false
	}
	return e.Attempt.State == v1beta1.AttemptFailed || e.Attempt.Reason == v1beta1.ReasonRebootRequired
}

// Facts are what one node's objects say about one Module.
type Facts struct {
	Node *corev1.Node
	Entry
	// Config and Delivery are what the Module asks for; nil: that the kernel module goes.
	Config   *v1beta1.ModuleConfig
	Delivery string
	// OnReboot: the Module asks that what is live stays until the next boot.
	OnReboot bool
	// Replaces: a first load takes out in-tree modules that pods of the node may use.
	Replaces bool
	// Unknown: nobody can say what the Module asks for, and the node keeps what it has.
	Unknown bool
	// Tainted as in [Node].
	Tainted bool
	// Paused: no order reaches the node. Begun, Passed, Late and Later as in [Node].
	Paused, Begun, Late, Later bool
	Passed                     time.Time
}

// Observe tells how far a node is.
func Observe(f *Facts) Node {
	n := Node{
		Name: f.Node.Name, Ready: placement.Ready(f.Node), Serving: f.serving(), Late: f.Late, Paused: f.Paused || f.Unknown,
		Build: f.Delivery, Held: f.Holds(f.Delivery), Stage: f.stage(), Begun: f.Begun, Passed: f.Passed, Tainted: f.Tainted,
	}
	switch n.Stage {
	case Given:
		n.Failed = f.failed()
		n.Rests = f.rests()
		if n.Failed == "" && f.done() {
			// The API cuts times to the second: round up, so that a node soaks no less than asked.
			n.Since = f.Live.LastTransitionTime.Add(time.Second)
			n.Load = Load{Boot: f.Live.BootID, At: f.Live.LastTransitionTime.Unix()}
		}
	case Behind:
		n.Stuck, n.Changing, n.First = f.stuck(), f.changing(), f.replaces()
		n.Serving = n.Serving || n.First
		n.Late = n.Late || f.refused()
	case Leaving:
		n.Later, n.Changing = f.Later && !f.Tainted, f.changing()
	case Fresh:
		n.Lost, n.Reverted, n.Changing = f.lost(), f.reverted(), f.changing()
	case AtBoot:
		n.Changing = f.changing()
	case Going, Out:
	}
	return n
}

func (f *Facts) stage() Stage {
	ordered := f.Order != nil && f.Order.State != v1beta1.NodeModuleAbsent
	switch {
	case f.Unknown && ordered && f.Order.Delivery != nil:
		return Behind
	case f.Unknown:
		return Fresh
	case f.Tainted && f.Order == nil && f.Live == nil:
		return Out
	case f.Config == nil && f.Order != nil && (!ordered || f.Order.State == v1beta1.NodeModuleDraining):
		return Going
	case f.Config == nil:
		return Leaving
	case f.replaces():
		return f.behind()
	case f.Order == nil && f.serving() && !f.done() && f.Live.Observed.Delivery != "":
		// Its order went, and what was loaded by it did not.
		return f.behind()
	case !ordered && f.Order != nil && f.serving() && f.Live.Observed.Delivery != "" && !f.reverted():
		// It is on its way out, and asked for again, otherwise.
		return f.behind()
	case !ordered, f.Order.Delivery == nil:
		// Nothing is ordered, or by another operator: our agent loaded nothing.
		return Fresh
	case f.Order.State == v1beta1.NodeModuleDraining:
		return Given // its turn has come: devices are given back before the order
	case f.Order.Delivery.ID == f.Delivery && SameBuild(&f.Order.Config, f.Config):
		if f.keeps() && !f.OnReboot && f.failed() == "" {
			return Behind // without a boot, it is to change by another order
		}
		return Given
	case !kernel.SameVersion(f.Order.Config.KernelVersion, f.Config.KernelVersion) && !f.serving(), f.reverted():
		return Fresh
	}
	return f.behind()
}

// reverted: what the Module asks for is live, while another order waits, for a boot or for users.
// The order for what is live takes nothing away, and the other one must go.
func (f *Facts) reverted() bool {
	return f.Order != nil && f.Config != nil && f.serving() && SameBuild(f.Live.Config, f.Config) && f.Live.Observed.Delivery == f.Delivery
}

// behind: what is live is to change, now or with the next boot. Whoever reboots the node sets the
// pace of the second.
func (f *Facts) behind() Stage {
	if f.OnReboot && (f.serving() || f.replaces()) {
		return AtBoot
	}
	return Behind
}

// replaces: nothing is ordered, and nothing of ours is live, but perhaps what the order takes out.
func (f *Facts) replaces() bool {
	return f.Replaces && f.Config != nil && f.Order == nil && f.Live == nil
}

// keeps: what is live stays until the next boot, and the order names something else.
func (f *Facts) keeps() bool {
	return f.Order.UnloadPolicy == v1beta1.UnloadOnReboot && f.serving() && f.Differs()
}

// lost: what was ordered went with the last boot, and is of no use in this one.
func (f *Facts) lost() bool {
	ordered := f.Order != nil && f.Order.State != v1beta1.NodeModuleAbsent && f.Order.Delivery != nil
	return ordered && !f.Unknown && !f.serving()
}

// serving: the agent saw the kernel module live in the node's current boot.
func (f *Facts) serving() bool {
	return f.Live != nil && f.Live.Observed != nil && f.Live.BootID == f.Node.Status.NodeInfo.BootID
}

// done: what the Module asks for is live, and the agent asks for nothing more.
func (f *Facts) done() bool {
	if !f.serving() || f.open() || !SameBuild(f.Live.Config, f.Config) {
		return false
	}
	if by := f.Live.Observed.Delivery; by != "" {
		return by == f.Delivery
	}
	return f.Live.Observed.BuiltIn || f.Holds(f.Delivery)
}

// Remark reports whether an attempt says something about what is live although the order is carried
// out: nothing is left to do for it.
func Remark(a *v1beta1.NodeModuleAttempt) bool {
	return a != nil && (a.Reason == v1beta1.ReasonParametersDiffer || a.Reason == v1beta1.ReasonDependencyKept)
}

func (f *Facts) open() bool {
	return f.Attempt != nil && !Remark(f.Attempt) && f.Attempt.State != v1beta1.AttemptAbsent && f.Attempt.State != v1beta1.AttemptUnclaimed
}

// failed is why the order failed; empty: it did not.
func (f *Facts) failed() string {
	if f.Attempt == nil || f.Attempt.State != v1beta1.AttemptFailed && f.Attempt.Strike == nil || f.outdated() {
		return ""
	}
	return f.Attempt.Reason
}

// rests: the order waits for the next boot, and what is live stays until then.
func (f *Facts) rests() bool {
	return f.serving() && f.Attempt != nil && f.Attempt.Reason == v1beta1.ReasonRebootRequired && !f.outdated()
}

// changing: what is live is ordered to go, for something else or for nothing, and nothing says that
// it stays.
func (f *Facts) changing() bool {
	if !f.serving() || f.Order == nil || f.Order.Paused || f.failed() != "" || f.rests() {
		return false
	}
	goes := f.Order.State == v1beta1.NodeModuleAbsent || f.Order.Delivery != nil && f.Differs()
	return goes && f.Order.UnloadPolicy != v1beta1.UnloadOnReboot
}

// stuck: nothing is live, and nothing comes of the order: it is paused, its image is not there, or
// the agent says what it waits for, or why it failed.
func (f *Facts) stuck() bool {
	return f.Live == nil && f.Order != nil && (f.Order.Paused || f.open() || f.failed() != "" || !f.Holds(f.Order.Delivery.ID))
}

// refused: the node could not use what was delivered ahead.
func (f *Facts) refused() bool {
	return f.serving() && f.failed() != "" && f.Order != nil && f.Order.Next != nil
}

// SameBuild compares what a reload would change; how an image is pulled is not part of it.
// No config is the same as an empty one.
func SameBuild(a, b *v1beta1.ModuleConfig) bool {
	if a == b || a != nil && b != nil && identical(a, b) {
		return true
	}
	pair := builds.Get().(*[2]v1beta1.ModuleConfig) //nolint:errcheck // nothing else is in it
	for i, of := range []*v1beta1.ModuleConfig{a, b} {
		pair[i] = kernel.Canonical(ptr.Deref(of, v1beta1.ModuleConfig{}))
		pair[i].ImagePullPolicy, pair[i].InsecurePull = "", false
	}
	same := equality.Semantic.DeepEqual(&pair[0], &pair[1])
	*pair = [2]v1beta1.ModuleConfig{}
	builds.Put(pair)
	return same
}

// identical compares field by field, for speed: in a pass over a fleet, this is asked of each node
// several times, and nearly always it is true. False: they may still mean the same.
func identical(a, b *v1beta1.ModuleConfig) bool {
	x, y := &a.Modprobe, &b.Modprobe
	return a.KernelVersion == b.KernelVersion && a.ContainerImage == b.ContainerImage && a.InTreeModuleToRemove == b.InTreeModuleToRemove &&
		x.ModuleName == y.ModuleName && x.DirName == y.DirName && x.FirmwarePath == y.FirmwarePath && x.ModprobedDir == y.ModprobedDir &&
		slices.Equal(a.InTreeModulesToRemove, b.InTreeModulesToRemove) && slices.Equal(x.Parameters, y.Parameters) &&
		slices.Equal(x.ModulesLoadingOrder, y.ModulesLoadingOrder) && sameArgs(x.Args, y.Args) && sameArgs(x.RawArgs, y.RawArgs)
}

func sameArgs(a, b *v1beta1.ModprobeArgs) bool {
	return a == b || a != nil && b != nil && slices.Equal(a.Load, b.Load) && slices.Equal(a.Unload, b.Unload)
}

// builds are room for what is compared, several times for each node of a fleet in one pass.
var builds = sync.Pool{New: func() any { return &[2]v1beta1.ModuleConfig{} }}

// Sightings are since when this process has seen changes live, by its own clock, which measures the
// soak time: a node's clock may differ. The zero value has seen nothing.
type Sightings struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]map[string]sighting
}

type sighting struct {
	load Load
	at   time.Time
}

// before is when what a new process finds live became so, if no node waits for it.
var before = time.Unix(0, 0)

// Date replaces the nodes' times at which the change became live by those at which it was first
// seen. For a new Module, a process begins all soak times anew, unless no node waits for its turn:
// the status would report an unavailable fleet for nothing.
func (s *Sightings) Date(module types.NamespacedName, nodes []Node, policy Policy, now time.Time) {
	if policy.Soak <= 0 {
		s.Forget(module)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	had, known := s.seen[module]
	first := now
	if !known && !waiting(nodes) {
		first = before
	}
	has := make(map[string]sighting, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if n.Since.IsZero() {
			continue
		}
		seen, ok := had[n.Name]
		if !ok || seen.load != n.Load {
			seen = sighting{load: n.Load, at: first}
		}
		has[n.Name], n.Since = seen, seen.at
	}
	if s.seen == nil {
		s.seen = map[types.NamespacedName]map[string]sighting{}
	}
	s.seen[module] = has
}

// Forget forgets a Module.
func (s *Sightings) Forget(module types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, module)
}

// waiting reports whether a node waits for its turn.
func waiting(nodes []Node) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.Stage == Behind || n.Stage == Leaving })
}
