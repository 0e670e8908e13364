// SPDX-License-Identifier: Apache-2.0

package module

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/reasons"
)

const (
	firstRest = 10 * time.Second
	longRest  = 5 * time.Minute
)

// ledger is what the operator knows of deliveries that no API object tells: which carriers this process created, what
// failed where and until when it rests, and which slots each Module holds. All of it is lost with the process, and a
// new process starts well without it: carriers it does not know and no entry names are made again.
type ledger struct {
	mu      sync.Mutex
	max     int
	clock   clock.PassiveClock
	modules map[types.NamespacedName]*account
	// recalled are problems by node that the process before this one told of, and this one has not met yet. They stay told,
	// and decide nothing.
	recalled map[types.NamespacedName]map[string]reasons.Problem
}

type account struct {
	carriers map[types.UID]sight
	slots    slots
	failures map[place]failure
}

// sight is what this process knows of a carrier.
type sight struct {
	// created: by this process.
	created bool
	// runs, or does not, since then, as this process saw it: what the pod says of times is by its node's clock.
	runs  bool
	since time.Time
}

// place is where a delivery failed: another image on the same node starts afresh.
type place struct{ node, image string }

type failure struct {
	problem reasons.Problem
	at      time.Time
	rest    time.Duration
	until   time.Time
	// retry is the last request to try again that stood then; zero: none.
	retry time.Time
}

func newLedger(slots int, clock clock.PassiveClock) *ledger {
	return &ledger{
		max: slots, clock: clock, modules: map[types.NamespacedName]*account{},
		recalled: map[types.NamespacedName]map[string]reasons.Problem{},
	}
}

// at returns a Module's account. The lock must be held.
func (l *ledger) at(key types.NamespacedName) *account {
	if l.modules[key] == nil {
		l.modules[key] = &account{carriers: map[types.UID]sight{}, failures: map[place]failure{}}
	}
	return l.modules[key]
}

// read returns a Module's account, empty where it has none: reading makes none. The lock must be held.
func (l *ledger) read(key types.NamespacedName) account {
	if a := l.modules[key]; a != nil {
		return *a
	}
	return account{}
}

// create notes a carrier that this process created.
func (l *ledger) create(key types.NamespacedName, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at(key).carriers[uid] = sight{created: true, since: l.clock.Now()}
}

// created reports whether this process created the carrier.
func (l *ledger) created(key types.NamespacedName, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read(key).carriers[uid].created
}

// waited is how long a carrier has been as it is, running or not.
func (l *ledger) waited(key types.NamespacedName, uid types.UID) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, ok := l.read(key).carriers[uid]
	if !ok {
		return 0
	}
	return l.clock.Since(seen.since)
}

// look notes the carriers that the pass sees and forgets all others.
func (l *ledger) look(key types.NamespacedName, views []view) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, seen := l.read(key).carriers, map[types.UID]sight{}
	for i := range views {
		for _, pod := range views[i].carriers {
			now, ok := known[pod.UID]
			if runs := delivery.Running(pod); !ok || now.runs != runs {
				now.runs, now.since = runs, l.clock.Now()
			}
			seen[pod.UID] = now
		}
	}
	if len(known)+len(seen) > 0 {
		l.at(key).carriers = seen
	}
}

// fail notes a delivery that was refused or ended badly: it rests 10 s, then twice as long each time, up to 5 min.
func (l *ledger) fail(key types.NamespacedName, node, image string, problem reasons.Problem, retry time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := place{node, image}
	f := l.at(key).failures[at]
	f.problem, f.retry = problem, retry
	f.rest = min(max(2*f.rest, firstRest), longRest)
	f.at = l.clock.Now()
	f.until = f.at.Add(f.rest)
	l.at(key).failures[at] = f
	delete(l.recalled[key], node)
}

// recall takes over what is told of a Module's deliveries when the process sees it for the first time. What else is told
// follows from each pass.
func (l *ledger) recall(key types.NamespacedName, told map[string]reasons.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.recalled[key]; !known {
		l.recalled[key] = told
		maps.DeleteFunc(told, func(_ string, p reasons.Problem) bool { return reasons.Step(p.Reason) != reasons.StepDelivered })
	}
}

// resting reports whether the delivery failed too recently to try again, unless a retry was asked for since: requests are told apart by
// their times, which are by clocks of people.
func (l *ledger) resting(key types.NamespacedName, node, image string, retry time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.read(key).failures[place{node, image}]
	return ok && l.clock.Now().Before(f.until) && !retry.After(f.retry)
}

// failed is when the delivery failed last; zero: it did not.
func (l *ledger) failed(key types.NamespacedName, node, image string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read(key).failures[place{node, image}].at
}

// retain forgets failures but those with the images that nodes need now, by node.
func (l *ledger) retain(key types.NamespacedName, needed map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.read(key).failures, func(at place, _ failure) bool { return at.image != needed[at.node] })
	maps.DeleteFunc(l.recalled[key], func(node string, _ reasons.Problem) bool { return needed[node] == "" })
}

// nextRetry is the time until the first delivery that rests may be tried again; 0 when none rests.
func (l *ledger) nextRetry(key types.NamespacedName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next time.Duration
	for _, f := range l.read(key).failures {
		if left := f.until.Sub(l.clock.Now()); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// problems are a Module's open failures by node, and under v1beta1.AllNodes the one that blocks all.
func (l *ledger) problems(key types.NamespacedName, blocked *reasons.Problem) map[string]reasons.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]reasons.Problem{}
	maps.Copy(all, l.recalled[key])
	for at, f := range l.read(key).failures {
		all[at.node] = f.problem
	}
	if blocked != nil {
		all[v1beta1.AllNodes] = *blocked
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
