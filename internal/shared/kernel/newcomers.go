// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// newcomersWindow is how long a kernel is new.
const newcomersWindow = time.Hour

// Newcomers bound how many new kernels of a node or cluster get images within an hour: it may
// report any kernel, and each new one is a build. P is a kernel with its architecture. A new
// process starts anew.
type Newcomers[P comparable] struct {
	most  int
	mu    sync.Mutex
	known map[string]map[P]time.Time
}

// NewNewcomers allows most new kernels for each node or cluster.
func NewNewcomers[P comparable](most int) *Newcomers[P] {
	return &Newcomers[P]{most: most, known: map[string]map[P]time.Time{}}
}

// Allow reports whether the kernel of a node or cluster may get images now, or else after how long.
func (n *Newcomers[P]) Allow(name string, now P, at time.Time) (ok bool, again time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.known[name]
	if known == nil {
		known = map[P]time.Time{}
		n.known[name] = known
	}
	if _, ok := known[now]; ok {
		return true, 0
	}
	for p, since := range known {
		left := since.Add(newcomersWindow).Sub(at)
		switch {
		case left <= 0:
			delete(known, p)
		case again == 0 || left < again:
			again = left
		}
	}
	if len(known) >= n.most {
		return false, again
	}
	known[now] = at
	return true, 0
}

// Keep forgets nodes or clusters that are gone and have no new kernels.
func (n *Newcomers[P]) Keep(exists map[string]bool, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, known := range n.known {
		fresh := func(since time.Time) bool { return at.Before(since.Add(newcomersWindow)) }
		if !exists[name] && !slices.ContainsFunc(slices.Collect(maps.Values(known)), fresh) {
			delete(n.known, name)
		}
	}
}
