// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/operator/controller/guard"
	"github.com/drover-project/drover/internal/operator/gate"
)

// patience is how long a Lease may take to end, and look the time between two looks at it.
const (
	patience = time.Minute
	look     = time.Second
)

// system is Drover's namespace, and program begins its pods' names, so its Leases' holders.
const system, program = "drover-system", "drover-"

// names of the Leases by which Drover's operators lead. KMM's can be ours, by its settings.
var names = []string{"drover-operator", "drover-hub", guard.PeerLease}

// ended waits until Drover's own operators lead no more: what has just been deleted still stops.
func ended(ctx context.Context, c client.Client, clock clock.Clock) error {
	until := clock.Now().Add(patience)
	for _, name := range names {
		for l := (leading{name: name}); ; {
			holder, err := l.now(ctx, c, clock.Now())
			if err != nil {
				return err
			}
			if holder == "" {
				break
			}
			if !clock.Now().Before(until) {
				return fmt.Errorf("the Lease %s/%s is held by %s: Drover's operator must stop first, as it would put finalizers on again",
					system, name, holder)
			}
			if err := wait(ctx, clock); err != nil {
				return err
			}
		}
	}
	return nil
}

// leading is a Lease of ours as it was when it was last seen to change, by our clock.
type leading struct {
	name string
	spec coordinationv1.LeaseSpec
	at   time.Time
}

// now is the Lease's holder; empty: nobody leads. A Lease's times are its holder's: it is held
// while it changes within its duration by our clock.
func (l *leading) now(ctx context.Context, c client.Client, at time.Time) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: system, Name: l.name}, lease); err != nil {
		if err = client.IgnoreNotFound(err); err != nil {
			return "", fmt.Errorf("get Lease %s/%s: %w", system, l.name, err)
		}
		return "", nil
	}
	if l.at.IsZero() || !equality.Semantic.DeepEqual(l.spec, lease.Spec) {
		l.spec, l.at = lease.Spec, at
	}
	holder := ptr.Deref(l.spec.HolderIdentity, "")
	if l.name == guard.PeerLease && !strings.HasPrefix(holder, program) {
		return "", nil // that is KMM's, or not in a pod
	}
	if !at.Before(l.at.Add(time.Duration(ptr.Deref(l.spec.LeaseDurationSeconds, 0)) * time.Second)) {
		return "", nil
	}
	return holder, nil
}

// peer says that KMM's operator is at work, by the same signs as Drover's own operator does; empty:
// it is not. A Lease that is not renewed for its duration has ended.
func peer(ctx context.Context, c client.Client, clock clock.Clock) (string, error) {
	g := guard.New(c, &gate.Gate{}, clock)
	problem, left, err := g.Peer(ctx)
	for until := clock.Now().Add(min(left, patience)); err == nil && problem != nil && clock.Now().Before(until); {
		if err := wait(ctx, clock); err != nil {
			return "", err
		}
		problem, _, err = g.Peer(ctx)
	}
	if err != nil || problem == nil {
		return "", err
	}
	return problem.Message, nil
}

func wait(ctx context.Context, clock clock.Clock) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait until the operator has stopped: %w", ctx.Err())
	case <-clock.After(look):
		return nil
	}
}
