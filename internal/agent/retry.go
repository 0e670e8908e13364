// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	retryFile   = "retry.json"
	retrySchema = 2
	// maxObeyed bounds how many orders' retries are remembered; those of orders that are gone are forgotten above it.
	maxObeyed = 256
)

// obeyed are the retries that were carried out. They outlive boots, on disk before the load that follows: a node that goes down in that
// load must not try it again for the same request. Requests are told apart by their time, which is not compared with any clock of the node.
type obeyed struct {
	Last map[key]time.Time `json:"last,omitempty"`
	// heard are the requests for which this process has forgotten the pause between tries; what else there is to forget
	// is known once the order's modules are.
	heard map[key]time.Time
}

// readObeyed returns an empty memory when there is none. One that cannot be trusted is moved aside, which the error says: a request that still
// stands is then carried out again.
func readObeyed(dir string) (*obeyed, error) {
	read := &obeyed{}
	err := statefile.Read(dir, retryFile, retrySchema, read)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || read.Last == nil {
		read = &obeyed{Last: map[key]time.Time{}}
	}
	read.heard = map[key]time.Time{}
	return read, err
}

// of is the request that was carried out last for an order; nil: none.
func (o *obeyed) of(k key) *metav1.Time {
	at, ok := o.Last[k]
	if !ok {
		return nil
	}
	return new(metav1.NewTime(at.UTC()).Rfc3339Copy())
}

// retryAsked tells whether somebody asked for another try of the order, and there is something to do about it now.
func (p *pass) retryAsked(f facts) bool {
	if f.order == nil || f.order.Retry == nil || f.order.Paused || !f.order.Retry.After(p.obeyed.Last[f.key]) {
		return false
	}
	return !p.obeyed.heard[f.key].Equal(f.order.Retry.Time) || p.settled(f)
}

// settled tells whether it is known what a retry of the order has to forget.
func (p *pass) settled(f facts) bool {
	return f.plan != nil || absentOrder(f) || f.satisfied()
}

// forgive forgets, for one order, earlier failures, what the kernel refused, and what the fuse holds back.
func (p *pass) forgive(ctx context.Context, f facts) error {
	asked := f.order.Retry.Time
	delete(p.retries, f.task)
	delete(p.retries, task{key: f.key, previous: true})
	delete(p.journal.RolledBack, f.key)
	p.obeyed.heard[f.key] = asked
	if !p.settled(f) {
		return nil
	}
	klog.FromContext(ctx).Info("Trying again, as asked", "module", f.key.String(), "asked", asked)
	if f.plan != nil {
		if err := p.forgivePlan(f); err != nil {
			return err
		}
	}
	p.obeyed.Last[f.key] = asked
	if len(p.obeyed.Last) > maxObeyed {
		maps.DeleteFunc(p.obeyed.Last, func(k key, _ time.Time) bool { return p.orders[k] == nil })
	}
	return p.put(retryFile, retrySchema, p.obeyed)
}

// forgivePlan comes before the note that it was done: should the agent end in between, it is done once more, and nothing was loaded since.
func (p *pass) forgivePlan(f facts) error {
	refusals := len(p.journal.Refused)
	for _, s := range f.plan.Steps {
		delete(p.journal.Refused, s.build())
		if p.o.Fuse == nil {
			continue
		}
		if err := p.o.Fuse.Release(s.burns(), f.now); err != nil {
			return fmt.Errorf("release %s: %w", s.burns(), err)
		}
	}
	// What was certain to fail is judged anew, from the node as it is now.
	delete(p.plans, f.task)
	delete(p.known, f.task)
	if len(p.journal.Refused) == refusals {
		return nil
	}
	return p.noteJournal()
}
