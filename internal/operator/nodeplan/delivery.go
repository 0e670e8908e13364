// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

const (
	// StartTime is how long a carrier may take to run until its slot, and its node's place in a
	// rollout, go to others. It stays and goes on beside them: a large image may take longer.
	StartTime = 2 * time.Minute
	// CollectTime is how long a carrier that runs may wait for its node's agent, which looks every
	// few seconds, until its slot goes to others.
	CollectTime = time.Minute
	// AnswerTime is how long an order for what the node holds may stand without a word of its agent,
	// which answers within seconds, and at the latest when a kernel call has taken too long.
	AnswerTime = 5 * time.Minute
	// QuietTime is how long a carrier stays as it is until it counts as one that only pulls, or waits:
	// it costs the registry and the node something, and the API server nothing.
	QuietTime = 10 * time.Second
)

// Delivery is which carriers come and go, and which order the node has, or gets, by them.
type Delivery struct {
	// Discard are carriers to delete.
	Discard []*corev1.Pod
	// Failed is why the one among them ended without delivering, or nil.
	Failed *reasons.Problem
	// Image that the node needs delivered, or nothing: failures with any other are history.
	// FailedAt is when its delivery failed last, Retry when a retry was asked for.
	Image           string
	FailedAt, Retry time.Time
	// Create is the carrier to create, or nil. Its UID goes into Order.
	Create *delivery.Request
	// Works: a carrier is at work, and holds a slot. Quiet is from when it costs the API server
	// nothing.
	Works bool
	Quiet time.Time
	// Mountless: the node mounts no images, which is written beside the order.
	Mountless bool
	// Order to write; nil: the one that stands is right.
	Order *v1beta1.NodeModuleSpec
	// Remove the order.
	Remove bool
	// Hold is why nothing may be delivered, or nil.
	Hold *Hold
	// Silent is since when the order stands without an answer, to be remembered; zero: it has one.
	Silent time.Time
	// Due is until time alone changes the delivery; 0: never.
	Due time.Duration
	// Tell is what to report of the node, or nil.
	Tell *reasons.Problem
}

// Delivery decides on a node's carriers, and on the order to write.
func (p *Pass) Delivery(n *Node, a *Aim, t *Turn) Delivery {
	d := Delivery{Mountless: n.mountless()}
	switch {
	case n.Node == nil:
		// Its NodeModulesConfig goes by the owner reference. Nobody is left to unload.
		d.Discard = standing(n.Carriers...)
	case a.Keep || t.Waits && t.Stay == nil:
		d.Order = n.paused(a.Wishes.Paused || p.withdrawn(n))
	case a.Order == nil:
		d.Discard = standing(n.Carriers...)
		if d.Order, d.Remove = p.unload(n, a); d.Order == nil && !d.Remove {
			d = p.listen(n, d)
		}
	case n.Holds(a.Order.Delivery.ID):
		d.Discard = standing(n.Carriers...)
		if d.Order = n.unlessRight(delivered(n, a, t)); d.Order == nil && t.Stay == nil {
			d = p.listen(n, d)
		}
	default:
		var carrier *corev1.Pod
		d.Image, d.Retry = a.Order.Config.ContainerImage, a.retry()
		d.FailedAt = p.failure(n, a).At
		carrier, d.Discard = p.carriers(n, a)
		if t.Waits && !t.Ahead {
			return p.await(n, a, t, d, carrier)
		}
		return p.bring(n, a, t, d, carrier)
	}
	return d
}

// carried is the order to write while a carrier brings what the node needs: the one that is aimed
// at or, ahead of the turn, the one that stays.
func carried(a *Aim, t *Turn, carrier types.UID) *v1beta1.NodeModuleSpec {
	by := &v1beta1.Delivery{ID: a.Order.Delivery.ID, CarrierUID: carrier}
	if t.Stay != nil {
		order := *t.Stay
		if deliveryOf(t.Stay) == by.ID { // what stays names it, for the next boot
			order.Delivery, order.Next = by, nil
		} else {
			order.Next = by
		}
		return &order
	}
	order := *a.Order
	order.Delivery = by
	return &order
}

// delivered is the order to write when the node holds what it needs.
func delivered(n *Node, a *Aim, t *Turn) *v1beta1.NodeModuleSpec {
	if t.Stay != nil {
		return t.Stay
	}
	return carried(a, t, n.carrier(a.Order.Delivery.ID))
}

// carriers are the one with what the node needs, or nil, and all others, to delete.
func (p *Pass) carriers(n *Node, a *Aim) (carrier *corev1.Pod, others []*corev1.Pod) {
	if len(n.Carriers) == 0 {
		return nil, nil
	}
	name := delivery.CarrierName(p.Key.Namespace, p.Key.Name, n.Name, a.Order.Delivery.ID)
	for _, pod := range n.Carriers {
		if pod.Name == name {
			carrier = pod
		} else {
			others = append(others, pod)
		}
	}
	return carrier, standing(others...)
}

// bring has what the node needs delivered.
func (p *Pass) bring(n *Node, a *Aim, t *Turn, d Delivery, carrier *corev1.Pod) Delivery {
	id := a.Order.Delivery.ID
	switch {
	case carrier == nil:
		return p.create(n, a, t, d)
	case carrier.DeletionTimestamp != nil:
		return d
	case delivery.Ended(carrier):
		return ended(d, carrier)
	case !p.suits(n, carrier), carrier.UID != n.carrier(id) && !p.Memory.Carriers[carrier.UID].Created:
		// The second: nobody here remembers having created it, so its content is not trusted.
		return discarded(d, carrier)
	case p.otherMode(n, carrier):
		return switched(n, a, t, d, carrier)
	case !delivery.Running(carrier) && p.pullsOtherwise(a, carrier, d.Retry):
		return discarded(d, carrier)
	}
	d.Order = n.unlessRight(carried(a, t, carrier.UID))
	refused := n.Attempt != nil && n.Attempt.State == v1beta1.AttemptFailed && n.carrier(id) == carrier.UID
	if !refused && delivery.ProblemOf(carrier) == nil && placement.Ready(n.Node) {
		d = p.watch(d, carrier)
		d.Works = !p.idles(carrier)
		d.Quiet = p.Now.Add(QuietTime - p.waited(carrier))
	}
	return d
}

// pullsOtherwise reports whether a new carrier may get what this one waits for: by other Secrets,
// with another image of the agent or, after a retry was asked for, by what its ServiceAccount has.
func (p *Pass) pullsOtherwise(a *Aim, carrier *corev1.Pod, retry time.Time) bool {
	agent := delivery.AgentImageOf(carrier)
	return !delivery.PullsAs(carrier, p.Module, a.Image) || agent != "" && agent != p.Carriers.Image ||
		retry.After(carrier.CreationTimestamp.Time) && delivery.ProblemOf(carrier) != nil
}

// create asks for a carrier, unless the node cannot run one now.
func (p *Pass) create(n *Node, a *Aim, t *Turn, d Delivery) Delivery {
	switch {
	case !placement.Ready(n.Node) || p.failure(n, a).Rests(p.Now, d.Retry):
		return d
	case p.Unsealed != nil:
		d.Hold = &Hold{By: Policies, Problem: p.Unsealed}
		return d
	case t.Stay == nil && n.mayHold(a.Order.Delivery.ID):
		d.Order = n.unlessRight(carried(a, t, ""))
		return d
	}
	d.Create = &delivery.Request{
		Module:     p.Module,
		Config:     &a.Order.Config,
		Image:      a.Image,
		ID:         a.Order.Delivery.ID,
		Node:       n.Node.Name,
		Mode:       p.mode(n),
		User:       p.Carriers.User,
		AgentImage: p.Carriers.Image,
	}
	d.Order = carried(a, t, "")
	return d
}

// mayHold reports whether the node's image is said to hold a delivery, and its agent has not said
// otherwise yet. A node without an agent that answers would take nothing from a carrier, either.
func (n *Node) mayHold(id string) bool {
	_, said := n.Node.Labels[v1beta1.BakedLabel(id)]
	unanswered := n.Live == nil && n.Attempt == nil
	return said && unanswered && (n.Order == nil || deliveryOf(n.Order) == id && n.carrier(id) == "")
}

// await leaves a node as it is until its turn comes. A carrier that does not start stays: by it,
// the node is known to come after the others, and it may still start.
func (p *Pass) await(n *Node, a *Aim, t *Turn, d Delivery, carrier *corev1.Pod) Delivery {
	d.Order = n.unlessRight(t.Stay)
	switch {
	case carrier == nil || carrier.DeletionTimestamp != nil:
		return d
	case delivery.Ended(carrier):
		return ended(d, carrier)
	case carrier.UID != n.carrier(a.Order.Delivery.ID) || !p.stalled(carrier):
		return discarded(d, carrier)
	}
	return p.watch(d, carrier)
}

// watch tells of a carrier that does not start, or says when it is looked at again.
func (p *Pass) watch(d Delivery, carrier *corev1.Pod) Delivery {
	switch {
	case p.stalled(carrier):
		d.Tell = delivery.Stalled(carrier, StartTime)
	case p.idles(carrier):
		d.Tell = &reasons.Problem{Reason: v1beta1.ReasonAgentMissing, Message: fmt.Sprintf("carrier pod %s has the image's content ready, and "+
			"no agent has fetched it for more than %d minute", carrier.Name, int(CollectTime.Minutes()))}
	case delivery.Running(carrier):
		d.Due = CollectTime - p.waited(carrier)
	default:
		d.Due = StartTime - p.waited(carrier)
	}
	return d
}

// listen tells of an order that stands, needs no carrier, and that no agent answers: one with other
// parameters, after a reboot, or to unload. A Module that is being deleted has words of its own.
func (p *Pass) listen(n *Node, d Delivery) Delivery {
	if p.Module == nil || p.Module.DeletionTimestamp != nil || n.Order == nil || n.Order.Paused || !placement.Ready(n.Node) || n.answered() {
		return d
	}
	if d.Silent = p.Memory.Silent[n.Node.UID]; d.Silent.IsZero() {
		d.Silent = p.Now
	}
	if left := AnswerTime - p.Now.Sub(d.Silent); left > 0 {
		d.Due = left
		return d
	}
	d.Tell = &reasons.Problem{Reason: v1beta1.ReasonAgentMissing, Message: fmt.Sprintf(
		"the agent has not answered the order for more than %d minutes", int(AnswerTime.Minutes()))}
	return d
}

// answered reports whether the agent has said what became of the order: why it is not carried out,
// or that it is.
func (n *Node) answered() bool {
	return n.Attempt != nil || !n.unloads() && n.inKernel() && rollout.SameBuild(&n.Order.Config, n.Live.Config)
}

// waited is how long the process has seen a carrier as it is, running or not.
func (p *Pass) waited(carrier *corev1.Pod) time.Duration {
	if seen, ok := p.Memory.Carriers[carrier.UID]; ok {
		return p.Now.Sub(seen.Since)
	}
	return 0
}

// stalled reports whether a carrier has not started for too long.
func (p *Pass) stalled(carrier *corev1.Pod) bool {
	return !delivery.Running(carrier) && p.waited(carrier) >= StartTime
}

// idles reports whether a carrier makes no progress: it is stalled, or nobody has taken its content
// for too long. It stays for an agent that comes late.
func (p *Pass) idles(carrier *corev1.Pod) bool {
	return p.stalled(carrier) || delivery.Running(carrier) && p.waited(carrier) >= CollectTime
}

// failure is how the delivery of what the node needs failed last; zero: it did not.
func (p *Pass) failure(n *Node, a *Aim) Failure {
	return p.Memory.Failures[Place{n.Name, a.Order.Config.ContainerImage}]
}

func discarded(d Delivery, carrier *corev1.Pod) Delivery {
	d.Discard = append(d.Discard, carrier)
	return d
}

// ended discards a carrier that is over, and says why.
func ended(d Delivery, carrier *corev1.Pod) Delivery {
	d.Failed = cmp.Or(delivery.ProblemOf(carrier), &reasons.Problem{
		Reason: v1beta1.ReasonDeliveryRefused, Message: "carrier pod " + carrier.Name + " ended before its content was taken",
	})
	return discarded(d, carrier)
}

// Software is what decides whether a node can mount images: its kubelet, its container runtime, and
// the boot, since settings are read at their start.
func Software(node *corev1.Node) string {
	info := &node.Status.NodeInfo
	return strings.Join([]string{info.KubeletVersion, info.ContainerRuntimeVersion, info.BootID}, " ")
}

// mountless reports whether the node with its software of now has failed to mount an image. Its
// NodeModulesConfig tells other Modules and the next process, too.
func (n *Node) mountless() bool {
	return n.Config != nil && n.Node != nil && n.Config.Annotations[v1beta1.NoImageVolumesAnnotation] == Software(n.Node)
}

// mode is that of the node's next carrier.
func (p *Pass) mode(n *Node) delivery.Mode {
	if p.auto() && n.mountless() {
		return delivery.ModeInitContainer
	}
	return p.Carriers.Mode.For(&n.Node.Status.NodeInfo)
}

func (p *Pass) auto() bool { return p.Carriers.Mode == delivery.ModeAuto || p.Carriers.Mode == "" }

// suits reports whether a carrier's mode is still right. Where the operator chooses, an init
// container serves everywhere.
func (p *Pass) suits(n *Node, carrier *corev1.Pod) bool {
	mode := delivery.ModeOf(carrier)
	return mode == p.mode(n) || p.auto() && mode == delivery.ModeInitContainer && delivery.ProblemOf(carrier) == nil
}

// otherMode reports whether a carrier cannot start in its mode, and the operator chooses.
func (p *Pass) otherMode(n *Node, carrier *corev1.Pod) bool {
	return p.auto() && delivery.CannotStart(carrier) && p.Carriers.Mode.For(&n.Node.Status.NodeInfo) == delivery.ModeImageVolume
}

// switched leads from the mode of a carrier that cannot start to the other. If the second cannot
// start either, it rests like any failure, and the first is tried again: no kubelet says which is
// at fault.
func switched(n *Node, a *Aim, t *Turn, d Delivery, carrier *corev1.Pod) Delivery {
	d.Mountless = delivery.ModeOf(carrier) == delivery.ModeImageVolume
	if !d.Mountless {
		d.Failed = delivery.ProblemOf(carrier)
	}
	if d.Order = n.unlessRight(carried(a, t, carrier.UID)); d.Order == nil {
		d.Order = n.Order // for the annotation's sake
	}
	return discarded(d, carrier)
}
