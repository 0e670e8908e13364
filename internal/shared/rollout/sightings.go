// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

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
	for i := range nodes {
		if stage := nodes[i].Stage; stage == Behind || stage == Leaving {
			return true
		}
	}
	return false
}
