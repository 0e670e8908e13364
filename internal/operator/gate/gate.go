// SPDX-License-Identifier: Apache-2.0

// Package gate holds whether the operator may write anything but what it sees.
package gate

import (
	"sync"
	"time"

	"github.com/drover-project/drover/internal/shared/reasons"
)

// Pause is how long a controller leaves alone what it would work on, while the gate is closed.
const Pause = 15 * time.Second

// Gate is open or closed. The zero value, and nil, are open.
type Gate struct {
	mu       sync.Mutex
	problem  *reasons.Problem
	watchers []func()
}

// Closed is why the gate is closed; nil: it is open.
func (g *Gate) Closed() *reasons.Problem {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.problem
}

// Set closes the gate, or opens it with nil.
func (g *Gate) Set(p *reasons.Problem) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p == g.problem || p != nil && g.problem != nil && *p == *g.problem {
		return
	}
	g.problem = p
	for _, changed := range g.watchers {
		changed()
	}
}

// Watch calls changed after every change from now on. changed must return at once, and must not use
// the gate.
func (g *Gate) Watch(changed func()) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watchers = append(g.watchers, changed)
}
