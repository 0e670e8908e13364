// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Sightings are since when this process has seen live what nodes report as live, by its own clock: the soak time is measured by them, as a
// node's clock says nothing about ours. They are lost with the process. The zero value has seen nothing.
type Sightings struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]map[string]sighting
}

type sighting struct {
	load Load
	at   time.Time
}

// before is when what a new process finds live became so, where no node waits for it to have soaked.
var before = time.Unix(0, 0)

// Date replaces the times at which nodes say that the change became live with those at which it was first seen. A process that sees a Module
// for the first time begins all soak times anew, but where no node waits for its turn: nothing is gained there, and the status would say for
// that time that the fleet is unavailable.
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
	for i := range nodes {
		if stage := nodes[i].Stage; stage == Behind || stage == Leaving {
			return true
		}
	}
	return false
}
