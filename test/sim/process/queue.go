// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue holds the requests of a controller and when each is due. No worker waits for it.
type queue struct {
	clock   clock.PassiveClock
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	mu      sync.Mutex
	due     map[reconcile.Request]time.Time
}

var _ workqueue.TypedRateLimitingInterface[reconcile.Request] = (*queue)(nil)

func (q *queue) AddAfter(r reconcile.Request, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.clock.Now().Add(max(d, 0))
	if have, ok := q.due[r]; !ok || at.Before(have) {
		q.due[r] = at
	}
}

func (q *queue) Add(r reconcile.Request)             { q.AddAfter(r, 0) }
func (q *queue) AddRateLimited(r reconcile.Request)  { q.AddAfter(r, q.limiter.When(r)) }
func (q *queue) Forget(r reconcile.Request)          { q.limiter.Forget(r) }
func (q *queue) NumRequeues(r reconcile.Request) int { return q.limiter.NumRequeues(r) }
func (q *queue) Done(reconcile.Request)              {}
func (q *queue) ShutDown()                           {}
func (q *queue) ShutDownWithDrain()                  {}
func (q *queue) ShuttingDown() bool                  { return false }
func (q *queue) Get() (reconcile.Request, bool)      { return reconcile.Request{}, true }

func (q *queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.due)
}

// ready are the requests that are due, in the order of their names.
func (q *queue) ready() []reconcile.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []reconcile.Request
	for r, at := range q.due {
		if !at.After(q.clock.Now()) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b reconcile.Request) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// next is when the first request is due; zero: there is none.
func (q *queue) next() (first time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, at := range q.due {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

func (q *queue) take(r reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.due, r)
}
