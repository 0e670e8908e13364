// SPDX-License-Identifier: Apache-2.0

// Package pace says how long a Module's next pass over all nodes waits for more changes. After a
// quiet time that is short; in a burst, the time between two passes grows with the number of nodes,
// so that neither their number nor their share of a processor does: a load takes longer on more
// nodes, and each pass looks at all of them.
package pace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pace of one controller. Its fields do not change.
type Pace struct {
	// First is how long a change waits after a quiet time.
	First time.Duration
	// Most bounds the time between two passes.
	Most time.Duration
	// Each node makes the time between two passes longer.
	Each time.Duration

	mu   sync.Mutex
	next map[types.NamespacedName]time.Time // when the next pass may be
}

// Passed notes a pass over so many nodes that began at a time.
func (p *Pace) Passed(module types.NamespacedName, nodes int, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = map[types.NamespacedName]time.Time{}
	}
	p.next[module] = began.Add(min(time.Duration(nodes)*p.Each, p.Most))
}

// Wait is how long a change of now waits.
func (p *Pace) Wait(module types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A clock that was set back must not make it wait for longer than the bound.
	return min(max(p.First, p.next[module].Sub(now)), p.Most)
}

// Forget drops a Module that is gone.
func (p *Pace) Forget(module types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.next, module)
}
