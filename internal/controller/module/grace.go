// SPDX-License-Identifier: Apache-2.0

package module

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/rollout"
)

// calendar remembers for every Module since when which nodes are not wanted any more. It is lost with the process: a new
// one begins to count anew, which can only unload later, and costs no write.
type calendar struct {
	mu    sync.Mutex
	since map[types.NamespacedName]map[types.UID]time.Time
}

func newCalendar() *calendar {
	return &calendar{since: map[types.NamespacedName]map[types.UID]time.Time{}}
}

// of is what the last pass noted. Only the pass of that Module uses it.
func (c *calendar) of(key types.NamespacedName) map[types.UID]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since[key]
}

// note replaces what the last pass noted: a node that is wanted again, or gone, is forgotten.
func (c *calendar) note(key types.NamespacedName, since map[types.UID]time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(since) == 0 {
		delete(c.since, key)
		return
	}
	c.since[key] = since
}

// waits reports whether a node that is not wanted any more keeps for now what it has. An order to unload that stands
// already is not taken back for it.
func (pl *planner) waits(v *view) bool {
	grace := rollout.Grace(pl.snap.module)
	if grace <= 0 || !v.follows() || v.entry != nil && v.entry.State == v1beta1.NodeModuleAbsent {
		return false
	}
	since, known := pl.unwanted[v.node.UID]
	if !known {
		since = pl.now
	}
	pl.stillUnwanted[v.node.UID] = since
	left := since.Add(grace).Sub(pl.now)
	if left <= 0 {
		return false
	}
	pl.due(left)
	return true
}

// due notes that time alone changes the plan after so long.
func (pl *planner) due(left time.Duration) {
	if pl.patience == 0 || left < pl.patience {
		pl.patience = left
	}
}
