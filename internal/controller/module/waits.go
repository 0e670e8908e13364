// SPDX-License-Identifier: Apache-2.0

package module

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/reasons"
)

// waits are since when nodes are being emptied, and which of them have passed their turn to others. They only say how long it takes and who is
// next, so that a new process may begin anew.
type waits struct {
	mu    sync.Mutex
	nodes map[types.NamespacedName]map[string]wait
}

// wait is one node's.
type wait struct {
	// since is when it was first waited for; zero: it is not being emptied.
	since time.Time
	// passed is when the node last passed its turn, as it could not be emptied in time, and told is why; zero: it did not.
	passed time.Time
	told   *reasons.Problem
}

// over reports whether the node has passed its turn and has not got it again.
func (w wait) over() bool { return !w.passed.IsZero() && w.since.IsZero() }

// of is what is known of a node.
func (w *waits) of(key types.NamespacedName, node string) wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[key][node]
}

// keep forgets a Module's nodes that are not being emptied any more. Those that have passed their turn and wait for the next one are remembered.
func (w *waits) keep(key types.NamespacedName, nodes []*vacancy, hold map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := map[string]bool{}
	for _, v := range nodes {
		open[v.step.view.name] = v.open()
	}
	kept := map[string]wait{}
	for node, known := range w.nodes[key] {
		switch {
		case open[node]:
			kept[node] = known
		case !known.passed.IsZero() && hold[node]:
			known.since = time.Time{}
			kept[node] = known
		}
	}
	if w.nodes == nil {
		w.nodes = map[types.NamespacedName]map[string]wait{}
	}
	delete(w.nodes, key)
	if len(kept) > 0 {
		w.nodes[key] = kept
	}
}

// late reports whether a node has been waited for for longer than it may, now or at an earlier turn. The first time begins the wait.
func (w *waits) late(key types.NamespacedName, v *vacancy, now time.Time) bool {
	if !v.open() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[key] == nil {
		w.nodes[key] = map[string]wait{}
	}
	node := v.step.view.name
	known := w.nodes[key][node]
	if known.since.IsZero() {
		known.since = now
		w.nodes[key][node] = known
	}
	return !known.passed.IsZero() || !now.Before(known.since.Add(v.timeout()))
}

// pass notes that a node has had its turn for as long as it may.
func (w *waits) pass(key types.NamespacedName, v *vacancy, now time.Time, told *reasons.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	node := v.step.view.name
	if known, ok := w.nodes[key][node]; ok && !now.Before(known.since.Add(v.timeout())) {
		w.nodes[key][node] = wait{passed: now, told: told}
	}
}
