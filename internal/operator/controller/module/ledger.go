// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/reasons"
)

const (
	firstRest = 10 * time.Second
	longRest  = 5 * time.Minute
)

// ledger is what no API object tells of deliveries: which carriers this process created, what
// failed where, and which slots each Module has. It is lost with the process: carriers that a new
// one does not know, and no order names, are made again.
type ledger struct {
	mu      sync.Mutex
	window  window
	clock   clock.PassiveClock
	modules map[types.NamespacedName]*account
	// recalled are problems by node that the process before this one reported, and this one has not
	// met yet. They stay reported, and decide nothing.
	recalled map[types.NamespacedName]map[string]reasons.Problem
}

type account struct {
	carriers map[types.UID]nodeplan.Sight
	slots    slots
	failures map[nodeplan.Place]nodeplan.Failure
}

func newLedger(slots window, clock clock.PassiveClock) *ledger {
	return &ledger{
		window: slots, clock: clock, modules: map[types.NamespacedName]*account{},
		recalled: map[types.NamespacedName]map[string]reasons.Problem{},
	}
}

// at returns a Module's account. The caller has the lock.
func (l *ledger) at(key types.NamespacedName) *account {
	if l.modules[key] == nil {
		l.modules[key] = &account{carriers: map[types.UID]nodeplan.Sight{}, failures: map[nodeplan.Place]nodeplan.Failure{}}
	}
	return l.modules[key]
}

// read returns a Module's account, and makes none where it has none. The caller has the lock.
func (l *ledger) read(key types.NamespacedName) account {
	if a := l.modules[key]; a != nil {
		return *a
	}
	return account{}
}

// create notes a carrier that this process created on a node. What refused one before is history:
// what the node waits for now, the carrier tells.
func (l *ledger) create(key types.NamespacedName, node string, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.at(key)
	a.carriers[uid] = nodeplan.Sight{Created: true, Since: l.clock.Now()}
	delete(a.slots.granted, node)
	for at, f := range a.failures {
		if at.Node == node && f.Carrier == "" {
			f.Over = true
			a.failures[at] = f
		}
	}
}

// memory is what is known of a Module's deliveries, for one pass.
func (l *ledger) memory(key types.NamespacedName) nodeplan.Memory {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.read(key)
	return nodeplan.Memory{Carriers: maps.Clone(a.carriers), Failures: maps.Clone(a.failures)}
}

// look notes the carriers that the pass sees and forgets all others.
func (l *ledger) look(key types.NamespacedName, nodes []nodeplan.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, seen := l.read(key).carriers, map[types.UID]nodeplan.Sight{}
	for i := range nodes {
		for _, pod := range nodes[i].Carriers {
			now, ok := known[pod.UID]
			if runs := delivery.Running(pod); !ok || now.Runs != runs {
				now.Runs, now.Since = runs, l.clock.Now()
			}
			seen[pod.UID] = now
		}
	}
	if len(known)+len(seen) > 0 {
		l.at(key).carriers = seen
	}
}

// fail notes a delivery that was refused, or whose carrier ended badly: it rests 10 s, then twice
// as long, up to 5 min. One carrier fails once: while it cannot be deleted, each pass finds it.
func (l *ledger) fail(key types.NamespacedName, at nodeplan.Place, carrier types.UID, problem reasons.Problem, retry time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failures, now := l.at(key).failures, l.clock.Now()
	if carrier != "" && failures[at].Carrier == carrier {
		return
	}
	rest := min(max(2*failures[at].Rest, firstRest), longRest)
	failures[at] = nodeplan.Failure{Problem: problem, Carrier: carrier, At: now, Rest: rest, Until: now.Add(rest), Retry: retry}
	delete(l.recalled[key], at.Node)
}

// recall takes over what is reported of a Module's deliveries when the process sees it for the
// first time. What else is reported follows from each pass.
func (l *ledger) recall(key types.NamespacedName, told map[string]reasons.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.recalled[key]; !known {
		l.recalled[key] = told
		maps.DeleteFunc(told, func(_ string, p reasons.Problem) bool { return reasons.Step(p.Reason) != reasons.StepDelivered })
	}
}

// answered notes how long the API server took to answer an order.
func (l *ledger) answered(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.window.answered(took, l.clock.Now())
}

// retain forgets failures but those with the images that nodes need now, by node.
func (l *ledger) retain(key types.NamespacedName, needed map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.read(key).failures, func(at nodeplan.Place, _ nodeplan.Failure) bool {
		return at.Image != needed[at.Node]
	})
	maps.DeleteFunc(l.recalled[key], func(node string, _ reasons.Problem) bool { return needed[node] == "" })
}

// nextRetry is the time until the first delivery that rests may be tried again; 0 when none rests.
func (l *ledger) nextRetry(key types.NamespacedName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next time.Duration
	for _, f := range l.read(key).failures {
		if left := f.Until.Sub(l.clock.Now()); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// problems are a Module's open failures by node.
func (l *ledger) problems(key types.NamespacedName) map[string]reasons.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]reasons.Problem{}
	maps.Copy(all, l.recalled[key])
	for at, f := range l.read(key).failures {
		if !f.Over {
			all[at.Node] = f.Problem
		}
	}
	return all
}

// forget drops a Module that is leaving.
func (l *ledger) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.modules, key)
	delete(l.recalled, key)
}

// recollection is what a pass of a Module notes of its nodes for the next one. It is lost with the
// process, which can only change nodes later, and costs no write. The zero value has nothing.
type recollection[K comparable, V any] struct {
	mu    sync.Mutex
	noted map[types.NamespacedName]map[K]V
}

// of is what the last pass noted.
func (r *recollection[K, V]) of(key types.NamespacedName) map[K]V {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noted[key]
}

// note replaces what the last pass noted.
func (r *recollection[K, V]) note(key types.NamespacedName, nodes map[K]V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noted == nil {
		r.noted = map[types.NamespacedName]map[K]V{}
	}
	delete(r.noted, key)
	if len(nodes) > 0 {
		r.noted[key] = nodes
	}
}

const (
	// slotsPerNode bounds the carriers at work on one node, of all Modules. A kubelet pulls images
	// one by one unless it is configured otherwise.
	slotsPerNode = 10
	// askedFor is how long a Module that got too little counts as waiting. It asks again sooner.
	askedFor = time.Minute
)

// slots are a Module's part of the slots for deliveries.
type slots struct {
	// nodes are those with a carrier at work, and quiet is from when each is one that only pulls.
	nodes []string
	quiet []time.Time
	// granted are those among them for which no carrier has been created yet.
	granted map[string]bool
	// waiting counts what was asked for and not given, on nodes that had room for it; asked is
	// when, and since is when it last got a slot, or first asked.
	waiting      int
	asked, since time.Time
}

// reserve notes the nodes on which the Module has carriers at work, and from when each is quiet,
// and returns those of the nodes it asks for, in their order, that get a slot. Passes of
// several Modules run at the same time: what one gets, no other does.
//
// While others wait, a Module gets no more than its share: as many as each of them, and what they
// do not want. One that has more keeps it. Where there are more Modules than slots, those that have
// waited longest get one.
func (l *ledger) reserve(key types.NamespacedName, working []string, quiet []time.Time, asked []string) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	granted := map[string]bool{}
	if len(working) == 0 && len(asked) == 0 && l.modules[key] == nil {
		return granted
	}
	mine, now := &l.at(key).slots, l.clock.Now()
	mine.nodes, mine.quiet = working, quiet
	on := map[string]int{}
	for _, a := range l.modules {
		for _, node := range a.slots.nodes {
			on[node]++
		}
	}
	asked = slices.DeleteFunc(slices.Clone(asked), func(node string) bool { return on[node] >= slotsPerNode })
	if mine.waiting == 0 || mine.stale(now) {
		mine.since = now
	}
	mine.waiting, mine.asked = len(asked), now
	most := min(len(asked), l.room(key, now, l.window.most, (*slots).all),
		l.room(key, now, l.window.size, func(s *slots) int { return s.busy(now) }))
	for _, node := range asked[:most] {
		granted[node] = true
	}
	mine.nodes = slices.Concat(working, asked[:most])
	mine.quiet = slices.Concat(quiet, slices.Repeat([]time.Time{now.Add(nodeplan.QuietTime)}, most))
	mine.granted = maps.Clone(granted)
	if mine.waiting -= most; most > 0 {
		mine.since = now
	}
	return granted
}

// settle ends a pass: a slot for which no carrier was created, since it was refused for example, is
// free again, since the Module may not ask for minutes. It reports whether there was one.
func (l *ledger) settle(key types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.modules[key]
	if a == nil || len(a.slots.granted) == 0 {
		return false
	}
	var nodes []string
	var quiet []time.Time
	for i, node := range a.slots.nodes {
		if !a.slots.granted[node] {
			nodes, quiet = append(nodes, node), append(quiet, a.slots.quiet[i])
		}
	}
	a.slots.nodes, a.slots.quiet, a.slots.granted = nodes, quiet, nil
	return true
}

// room is how many of so many slots are free and a Module's, where held counts those that one has.
// The caller has the lock.
func (l *ledger) room(key types.NamespacedName, now time.Time, size int, held func(*slots) int) int {
	free := size
	for _, a := range l.modules {
		free -= held(&a.slots)
	}
	return max(0, min(free, l.share(key, now, size, held)-held(&l.at(key).slots)))
}

// deliveries are how many are under way, and how many may keep the API server busy.
func (l *ledger) deliveries() (n, limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.modules {
		n += len(a.slots.nodes)
	}
	return n, l.window.size
}

func (s *slots) stale(now time.Time) bool { return now.Sub(s.asked) > askedFor }

// all is how many slots a Module has, and busy how many of them keep the API server busy.
func (s *slots) all() int { return len(s.nodes) }

func (s *slots) busy(now time.Time) int {
	n := len(s.nodes)
	for _, from := range s.quiet {
		if !now.Before(from) {
			n--
		}
	}
	return n
}

// wants is how many slots a Module that holds so many would have if it got all that it asks for.
func (s *slots) wants(now time.Time, held int) int {
	if s.stale(now) {
		return held
	}
	return held + s.waiting
}

// share is how many of so many slots are a Module's while others want some: those who want least
// get it, and the others the same each of what is left.
func (l *ledger) share(key types.NamespacedName, now time.Time, size int, held func(*slots) int) int {
	type claim struct {
		key   types.NamespacedName
		wants int
		since time.Time
	}
	var claims []claim
	for k, a := range l.modules {
		if n := a.slots.wants(now, held(&a.slots)); n > 0 {
			claims = append(claims, claim{k, n, a.slots.since})
		}
	}
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.wants, b.wants) })
	left := size
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
