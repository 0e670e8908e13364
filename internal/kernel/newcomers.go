// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"sync"
	"time"
)

// newcomersWindow is how long a kernel is new.
const newcomersWindow = time.Hour

// Newcomers bound for how many kernels that are new there a node, or a cluster, has images made within an hour: it may say of its kernels what it likes,
// and each new one is a build. P is a kernel with its processor. What was said is lost with the process, which may make as many more then.
type Newcomers[P comparable] struct {
	most  int
	mu    sync.Mutex
	known map[string]map[P]time.Time
}

// NewNewcomers makes one that allows so many for each node or cluster.
func NewNewcomers[P comparable](most int) *Newcomers[P] {
	return &Newcomers[P]{most: most, known: map[string]map[P]time.Time{}}
}

// Allow reports whether images may be made for what a node or cluster says of a kernel now, and if not, after how long they may.
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

// Keep forgets what is gone and has said nothing new for long enough that it would have been forgotten in any case.
func (n *Newcomers[P]) Keep(exists map[string]bool, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, known := range n.known {
		fresh := false
		for _, since := range known {
			fresh = fresh || at.Before(since.Add(newcomersWindow))
		}
		if !exists[name] && !fresh {
			delete(n.known, name)
		}
	}
}
