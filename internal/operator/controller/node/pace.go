// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// settle is how long a Module's status waits for more changes: a burst on N nodes costs a
	// handful of writes.
	settle = time.Second
	// settleMost bounds that for large fleets.
	settleMost = 10 * time.Second
	// settleNodes is how many nodes make a Module's next status wait for a second after the one
	// before: a load takes longer on more nodes, and each status reads all of them.
	settleNodes = 500
)

// pace says when Modules' statuses are next. A change after a quiet time is told within settle; in
// a burst the time between two statuses grows with the number of nodes, so that neither their
// number nor their share of a processor does.
type pace struct {
	mu     sync.Mutex
	passes map[types.NamespacedName]time.Time // when the next one may be
}

// passed notes a status that counted so many nodes.
func (p *pace) passed(module types.NamespacedName, nodes int32, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.passes == nil {
		p.passes = map[types.NamespacedName]time.Time{}
	}
	p.passes[module] = now.Add(min(time.Duration(nodes)*time.Second/settleNodes, settleMost))
}

// wait is how long a Module's status waits for more changes.
func (p *pace) wait(module types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A clock that was set back must not make it wait for longer than the bound.
	return min(max(settle, p.passes[module].Sub(now)), settleMost)
}

func (p *pace) forget(module types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.passes, module)
}
