// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"sync"
	"time"
)

const (
	// maxKernels is for how many kernels that are new on it a node has images made within kernelsWindow: an upgrade that is tried, taken back
	// and tried again takes three. A node may say of its kernel what it likes, and each new one is a build.
	maxKernels    = 4
	kernelsWindow = time.Hour
)

// kernels are what nodes said of theirs, and since when. It is lost with the process, which may make as many more then. The zero value knows none.
type kernels struct {
	mu    sync.Mutex
	nodes map[string]map[platform]time.Time
}

// allow reports whether images may be made for what a node says of its kernel now, and if not, after how long they may.
func (k *kernels) allow(node string, now platform, at time.Time) (ok bool, again time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nodes == nil {
		k.nodes = map[string]map[platform]time.Time{}
	}
	known := k.nodes[node]
	if known == nil {
		known = map[platform]time.Time{}
		k.nodes[node] = known
	}
	for p, since := range known {
		left := since.Add(kernelsWindow).Sub(at)
		switch {
		case p == now:
			return true, 0
		case left <= 0:
			delete(known, p)
		case again == 0 || left < again:
			again = left
		}
	}
	if len(known) >= maxKernels {
		return false, again
	}
	known[now] = at
	return true, 0
}

// keep forgets nodes that are gone and have said nothing new for long enough that they would have been forgotten in any case.
func (k *kernels) keep(exists map[string]bool, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for node, known := range k.nodes {
		fresh := false
		for _, since := range known {
			fresh = fresh || at.Before(since.Add(kernelsWindow))
		}
		if !exists[node] && !fresh {
			delete(k.nodes, node)
		}
	}
}
