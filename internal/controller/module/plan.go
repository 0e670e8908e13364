// SPDX-License-Identifier: Apache-2.0

package module

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/desired"
	"github.com/drover-project/drover/internal/facts"
	"github.com/drover-project/drover/internal/placement"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/rollout"
)

// plan is what a pass does.
type plan struct {
	key   types.NamespacedName
	steps []step // the nodes where something is to do
	// remaining counts nodes that have, or will have after this pass, an entry or the live kernel module: a Module that is
	// being deleted waits for them.
	remaining int
	// left are those of them that it need not wait for.
	left []*view
	// working counts carriers that hold a slot, new ones too, and queued those that wait for one.
	working, queued int
	// unloadsAll is true when the Module is leaving altogether.
	unloadsAll bool
	// patience is until time alone changes the plan: a node is no longer wanted for long enough, or not waited for any more;
	// 0: never.
	patience time.Duration
	// rollout is until time alone changes what the rollout does next; 0: it does not. hold are the nodes that wait for their turn.
	rollout time.Duration
	hold    map[string]bool
	// blocked is why nothing may be delivered although something should.
	blocked *reasons.Problem
	// taints are the nodes whose devices get no new pods.
	taints taints
	// draining is true while an order waits for claims, or for the DRA driver; holders are the nodes with claims.
	draining bool
	holders  map[string]reasons.Problem
}

// step is what to do for one node, in the order of its fields.
type step struct {
	key  types.NamespacedName
	view *view
	// discard are carriers to delete.
	discard []*corev1.Pod
	// failed is why the carrier among them ended without delivering.
	failed *reasons.Problem
	// request is a carrier to create. Its UID goes into write.
	request *delivery.Request
	// write is the entry to apply.
	write *v1beta1.NodeModuleSpec
	// remove takes the entry out.
	remove bool
	// free takes off the finalizer that holds orders to unload: there are none, or nobody is left to carry them out.
	free bool
	// drained: nothing held devices there when the cache was read.
	drained bool
	// empty the node before anything is written; evict holders of the kernel module; uncordon what was cordoned for the Module.
	empty, evict, uncordon bool
	// consumers hold devices of the Module's DRA driver there, as namespace/name; restores: write calls that back, without which they could not end.
	consumers []string
	restores  bool
	options   v1beta1.DrainOptions
	// image that the node needs delivered, or nothing: failures with any other are history. retry is the last request to try again; zero: none.
	image string
	retry time.Time
	// mountless: it is to be remembered, with what is written, that the node mounts no images.
	mountless bool
}

func (s *step) idle() bool {
	return len(s.discard) == 0 && s.request == nil && s.write == nil && !s.remove && !s.free && !s.empty && !s.evict && !s.uncordon
}

// concerns: the entry is the Module's.
func (s *step) concerns(e v1beta1.NodeModuleSpec) bool {
	return e.Namespace == s.key.Namespace && e.Name == s.key.Name
}

// planner is the input of a plan besides the node at hand.
type planner struct {
	snap    *snapshot
	options *Options
	// desired is what the Module wants; nil without a moduleLoader.
	desired *desired.Fleet
	// entries are the orders for that.
	entries map[*desired.State]*v1beta1.NodeModuleSpec
	// trusted reports whether this process created the carrier with that UID.
	trusted func(types.UID) bool
	// resting reports whether a delivery has failed there so recently that it is not tried yet.
	resting func(node, image string, retry time.Time) bool
	// waited is how long the process has seen a carrier as it is, running or not.
	waited func(types.UID) time.Duration
	// drained is what is known of the drain of a node.
	drained func(node string) wait
	// failed is when a delivery failed there last; zero: it did not.
	failed func(node, image string) time.Time
	// seen is since when the process knows what is live on nodes.
	seen *rollout.Sightings
	// now is the time of the pass.
	now time.Time
	// unwanted is since when nodes are not wanted any more: as the pass before saw it, and as this one does.
	unwanted, stillUnwanted map[types.UID]time.Time
	// patience is until time alone changes the plan; 0: never.
	patience time.Duration
	// rollout says which nodes may be changed; nil: all of them, whatever they hold.
	rollout *rollout.Plan
	// blocked is set when something should be delivered and nothing may be.
	blocked *reasons.Problem
	// taints, draining and holders are the plan's.
	taints   taints
	draining bool
	holders  map[string]reasons.Problem
}

// plan looks at every node once.
func (c *Controller) plan(snap *snapshot) *plan {
	pl := &planner{
		snap:    snap,
		options: &c.options,
		trusted: func(uid types.UID) bool { return c.ledger.created(snap.key, uid) },
		resting: func(node, image string, retry time.Time) bool { return c.ledger.resting(snap.key, node, image, retry) },
		waited:  func(uid types.UID) time.Duration { return c.ledger.waited(snap.key, uid) },
		drained: func(node string) wait { return c.drains.of(snap.key, node) },
		failed:  func(node, image string) time.Time { return c.ledger.failed(snap.key, node, image) },
		seen:    &c.seen,
		now:     c.options.Clock.Now(),

		unwanted:      c.unwanted.of(snap.key),
		stillUnwanted: map[types.UID]time.Time{},
	}
	if m := snap.module; m != nil && m.Spec.ModuleLoader != nil {
		pl.desired = c.desired.Of(m).With(desired.Images{Makes: c.options.Images, Made: snap.images})
	} else {
		c.desired.Forget(snap.key)
	}
	if snap.module != nil {
		c.ledger.look(snap.key, snap.nodes)
		c.ledger.recall(snap.key, facts.Problems(snap.module, v1beta1.ProblemDeliveries))
	}
	steps, working := pl.decideAll()
	pl.taints.stay = pl.changing()
	c.unwanted.note(snap.key, pl.stillUnwanted)
	asking := pl.asking(steps)
	granted := c.ledger.reserve(snap.key, working, names(asking))
	p := pl.admit(steps, asking, granted)
	p.working = len(working) + len(granted)
	if r := pl.rollout; r != nil {
		p.hold = r.Hold
		if !r.Again.IsZero() {
			p.rollout = max(r.Again.Sub(pl.now), time.Millisecond)
		}
	}
	needed := map[string]string{}
	for i := range steps {
		if steps[i].image != "" {
			needed[steps[i].view.name] = steps[i].image
		}
	}
	c.ledger.retain(snap.key, needed)
	return p
}

// decideAll returns a step for every node, and the nodes on which carriers are at work.
func (pl *planner) decideAll() (steps []step, working []string) {
	steps = make([]step, 0, len(pl.snap.nodes))
	aims := pl.aims()
	for i := range pl.snap.nodes {
		v := &pl.snap.nodes[i]
		s := step{key: pl.snap.key, view: v, mountless: v.mountless()}
		a := aims[i]
		switch {
		case v.node == nil:
			// The object of a node that is gone goes by its owner reference; nobody is left to unload anything.
			s.discard = standing(v.carriers)
		case a.keep:
			s.pause(a.wishes.Paused)
		case a.order == nil:
			pl.absent(&s, a.leave, a.wishes)
		case pl.present(&s, &a):
			working = append(working, v.name)
		}
		pl.evacuate(&s, &a)
		pl.drain(&s)
		s.free = s.write == nil && !s.remove && held(v.config) && (v.node == nil || !unloads(v.config))
		steps = append(steps, s)
	}
	return steps, working
}

// absent leads an entry out: order, wait for the answer, remove.
func (pl *planner) absent(s *step, reason string, wishes placement.Wishes) {
	v := s.view
	policy, follows := pl.unloadPolicy()
	s.discard = standing(v.carriers)
	acknowledged := !v.observed() && v.attempt != nil && v.attempt.State == v1beta1.AttemptAbsent
	switch {
	case v.entry == nil && v.live != nil:
		// Unclaimed: loaded by us, and no order names it. With its Module it leaves by an order like any other.
		s.write = &v1beta1.NodeModuleSpec{
			ModuleItem: v.live.ModuleItem, Config: ptr.Deref(v.live.Config, v1beta1.ModuleConfig{}), State: v1beta1.NodeModuleAbsent, Reason: reason,
		}
	case v.entry == nil:
		// Left over when two Modules left at the same time.
		s.remove = v.config != nil && v.attempt != nil && bare(v.config)
	case v.entry.State == v1beta1.NodeModuleAbsent && acknowledged:
		s.remove = true
	case v.entry.State != v1beta1.NodeModuleAbsent || holdable(v.config) && !held(v.config) || !asWished(v.entry, wishes) ||
		follows && v.entry.UnloadPolicy != policy:
		s.write = dressed(v.entry, wishes).DeepCopy()
		s.write.State, s.write.Reason, s.write.Next = v1beta1.NodeModuleAbsent, reason, nil
		if follows {
			s.write.UnloadPolicy = policy
		}
	}
}

// unloadPolicy is the Module's, which an order to unload follows for as long as there is one to ask.
func (pl *planner) unloadPolicy() (policy v1beta1.UnloadPolicy, known bool) {
	if m := pl.snap.module; m != nil && m.Spec.ModuleLoader != nil {
		return m.Spec.ModuleLoader.Container.UnloadPolicy, true
	}
	return "", false
}

// present leads an entry to the order, delivering the image first. It reports whether a carrier is at work.
func (pl *planner) present(s *step, a *aim) (working bool) {
	v, id := s.view, a.order.Delivery.ID
	if holds(v.config, id) {
		s.discard = standing(v.carriers)
		s.writeUnlessRight(a.delivered(v))
		return false
	}
	s.image, s.retry = a.order.Config.ContainerImage, a.asked()
	var current *corev1.Pod
	name := delivery.CarrierName(s.key.Namespace, s.key.Name, v.name, id)
	for _, pod := range v.carriers {
		if pod.Name == name {
			current = pod
		} else {
			s.discard = append(s.discard, standing([]*corev1.Pod{pod})...)
		}
	}
	if a.stay != nil && !a.ahead {
		pl.wait(s, a, current)
		return false
	}
	switch {
	case current == nil:
		pl.deliver(s, a)
		return false
	case current.DeletionTimestamp != nil:
		return false
	case delivery.Ended(current):
		s.discard, s.failed = append(s.discard, current), problemOf(current)
		return false
	case !pl.suits(current, v), current.UID != v.carrierUID(id) && !pl.trusted(current.UID):
		// The second: nobody here remembers having created it, so its content is not trusted.
		s.discard = append(s.discard, current)
		return false
	case pl.switches(s, a, current):
		return false
	}
	if _, runs := delivery.RunningSince(current); !runs && !delivery.PullsAs(current, pl.snap.module, a.image) {
		// It waits for an image that other Secrets may be allowed to pull.
		s.discard = append(s.discard, current)
		return false
	}
	s.writeUnlessRight(a.carriedBy(current.UID))
	failed := v.attempt != nil && v.attempt.State == v1beta1.AttemptFailed && v.carrierUID(id) == current.UID
	return !failed && delivery.ProblemOf(current) == nil && placement.Ready(v.node) && !pl.idles(s, current)
}

// deliver asks for a carrier, unless the node cannot run one now.
func (pl *planner) deliver(s *step, a *aim) {
	node, order := s.view.node, a.order
	if !placement.Ready(node) || pl.resting(s.view.name, s.image, s.retry) {
		return
	}
	if pl.snap.unsealed != nil {
		pl.blocked = pl.snap.unsealed
		return
	}
	s.request = &delivery.Request{
		Module:     pl.snap.module,
		Config:     &order.Config,
		Image:      a.image,
		ID:         order.Delivery.ID,
		Node:       node.Name,
		Mode:       pl.mode(s.view),
		User:       pl.options.CarrierUser,
		AgentImage: pl.options.AgentImage,
	}
	s.write = a.carriedBy("").DeepCopy()
}

// writeUnlessRight applies the order unless the entry, and the object's owner, are so already.
func (s *step) writeUnlessRight(order *v1beta1.NodeModuleSpec) {
	want := *order
	if v := s.view; v.entry != nil {
		have := *v.entry
		if have.State != "" {
			// An order to unload is taken back in words: another writer may own the state too, and would keep it. What is
			// left of the reason then means nothing.
			want.State = v1beta1.NodeModulePresent
			if have.State == want.State {
				have.Reason = ""
			}
		}
		if owned(v.config, v.node.UID) && labelled(v.config, &want) && equality.Semantic.DeepEqual(&have, &want) {
			return
		}
	}
	s.write = want.DeepCopy()
}

// problemOf is why a carrier ended.
func problemOf(pod *corev1.Pod) *reasons.Problem {
	if p := delivery.ProblemOf(pod); p != nil {
		return p
	}
	return &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "carrier pod " + pod.Name + " ended before its content was taken"}
}

func holds(config *v1beta1.NodeModulesConfig, id string) bool {
	if config == nil {
		return false
	}
	for i := range config.Status.Artifacts {
		if config.Status.Artifacts[i].ID == id {
			return true
		}
	}
	return false
}

// bare reports whether nothing in the object is worth keeping: no order, and nothing that our agent saw live.
func bare(config *v1beta1.NodeModulesConfig) bool {
	return len(config.Spec.Modules) == 0 && idle(config)
}

// idle reports whether our agent saw nothing live.
func idle(config *v1beta1.NodeModulesConfig) bool {
	return !slices.ContainsFunc(config.Status.Modules, func(s v1beta1.NodeModuleStatus) bool { return s.Observed != nil })
}

func owned(config *v1beta1.NodeModulesConfig, node types.UID) bool {
	for i := range config.OwnerReferences {
		if config.OwnerReferences[i].UID == node {
			return true
		}
	}
	return false
}

// standing are the pods that are not being deleted yet.
func standing(pods []*corev1.Pod) []*corev1.Pod {
	var kept []*corev1.Pod
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			kept = append(kept, pod)
		}
	}
	return kept
}
