// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// slotsPerNode bounds the carriers at work on one node, of all Modules. A kubelet pulls images
	// one by one unless it is told otherwise.
	slotsPerNode = 10
	// askedFor is how long a Module that got too little counts as waiting. It asks again sooner.
	askedFor = time.Minute
)

// slots are a Module's part of the slots for deliveries.
type slots struct {
	// nodes are those with a carrier at work.
	nodes []string
	// waiting counts what was asked for and not given, on nodes that had room for it; asked is
	// when, and since is when it last got a slot, or first asked.
	waiting      int
	asked, since time.Time
}

// reserve notes the nodes on which the Module has carriers at work, and returns those of the nodes
// it asks for, in their order, that get a slot. Passes of several Modules run at the same time:
// what one gets, no other does.
//
// While others wait, a Module gets no more than its share: as many as each of them, and what they
// do not want. One that has more keeps it. Where there are more Modules than slots, those that have
// waited longest get one.
func (l *ledger) reserve(key types.NamespacedName, working, asked []string) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	granted := map[string]bool{}
	if len(working) == 0 && len(asked) == 0 && l.modules[key] == nil {
		return granted
	}
	mine, now := &l.at(key).slots, l.clock.Now()
	mine.nodes = working
	free, on := l.max, map[string]int{}
	for _, a := range l.modules {
		free -= len(a.slots.nodes)
		for _, node := range a.slots.nodes {
			on[node]++
		}
	}
	asked = slices.DeleteFunc(slices.Clone(asked), func(node string) bool { return on[node] >= slotsPerNode })
	if mine.waiting == 0 || mine.stale(now) {
		mine.since = now
	}
	mine.waiting, mine.asked = len(asked), now
	most := min(len(asked), max(free, 0), max(l.share(key, now)-len(working), 0))
	for _, node := range asked[:most] {
		granted[node] = true
	}
	mine.nodes = slices.Concat(working, asked[:most])
	if mine.waiting -= most; most > 0 {
		mine.since = now
	}
	return granted
}

func (s *slots) stale(now time.Time) bool { return now.Sub(s.asked) > askedFor }

// wants is how many slots a Module would have if it got all that it asks for.
func (s *slots) wants(now time.Time) int {
	if s.stale(now) {
		return len(s.nodes)
	}
	return len(s.nodes) + s.waiting
}

// share is how many of all slots are a Module's while others want some: those who want least get
// it, and the others the same each of what is left. The caller has the lock.
func (l *ledger) share(key types.NamespacedName, now time.Time) int {
	type claim struct {
		key   types.NamespacedName
		wants int
		since time.Time
	}
	var claims []claim
	for k, a := range l.modules {
		if n := a.slots.wants(now); n > 0 {
			claims = append(claims, claim{k, n, a.slots.since})
		}
	}
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.wants, b.wants) })
	left := l.max
	for len(claims) > 0 && claims[0].wants <= left/len(claims) {
		if claims[0].key == key {
			return claims[0].wants
		}
		left -= claims[0].wants
		claims = claims[1:]
	}
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key.String(), b.key.String()))
	})
	for i, c := range claims {
		if c.key == key {
			more := 0
			if i < left%len(claims) {
				more = 1
			}
			return left/len(claims) + more
		}
	}
	return 0
}
