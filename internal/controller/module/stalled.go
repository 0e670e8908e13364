// SPDX-License-Identifier: Apache-2.0

package module

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/internal/delivery"
)

const (
	// startTime is how long a carrier may take to run until it holds no slot, and its node no place in a rollout, any more. A large image may
	// take longer: the carrier stays and goes on, and others go on beside it.
	startTime = 2 * time.Minute
	// collectTime is how long a carrier that runs may wait for its node's agent until it holds no slot any more. An agent
	// that is there looks every few seconds.
	collectTime = time.Minute
)

// stalled reports whether a carrier has not been started for so long that its node seems to start no pods, or its image not to come.
func (pl *planner) stalled(carrier *corev1.Pod) bool {
	return !delivery.Running(carrier) && pl.waited(carrier.UID) >= startTime
}

// uncollected reports whether a carrier has had its content ready for so long that nobody seems to be there to take it: it
// stays for an agent that comes late, and holds no slot.
func (pl *planner) uncollected(carrier *corev1.Pod) bool {
	return delivery.Running(carrier) && pl.waited(carrier.UID) >= collectTime
}

// idles reports whether a carrier makes no progress, and tells of its node if it does not start. Until then, time alone changes the plan.
func (pl *planner) idles(s *step, carrier *corev1.Pod) bool {
	switch {
	case pl.stalled(carrier):
		pl.tell(s.view.name, delivery.Stalled(carrier, startTime))
		return true
	case pl.uncollected(carrier):
		return true
	case delivery.Running(carrier):
		pl.due(collectTime - pl.waited(carrier.UID))
	default:
		pl.due(startTime - pl.waited(carrier.UID))
	}
	return false
}

// wait leaves a node as it is until its turn comes. A carrier that makes no progress stays: by it, and by its failure, it is known that the
// node is to come after the others, and it may still be started.
func (pl *planner) wait(s *step, a *aim, current *corev1.Pod) {
	s.writeUnlessRight(a.stay)
	switch {
	case current == nil || current.DeletionTimestamp != nil:
	case delivery.Ended(current):
		s.discard, s.failed = append(s.discard, current), problemOf(current)
	case current.UID != s.view.carrierUID(a.order.Delivery.ID) || !pl.stalled(current):
		s.discard = append(s.discard, current)
	default:
		pl.idles(s, current)
	}
}
