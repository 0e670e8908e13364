// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"golang.org/x/sync/errgroup"
)

// Like the kubelet's: a lease is renewed four times while it lasts.
const (
	leasePeriod = 10 * time.Second
	leaseBeats  = 4
)

const (
	// slots is how many portions a lease's period is cut into, so that renewals spread.
	slots = 50
	// beatTimeout bounds one renewal; one that takes longer is made up for in the next period.
	beatTimeout = 5 * time.Second
	// beatParallel is how many nodes renew at a time.
	beatParallel = 256
	// aftermath is how long after an outage the cluster may yet call nodes unknown: whoever watches
	// the leases comes back late, too, and only then begins to miss renewals.
	aftermath = 5 * time.Minute
)

// missed is a gap between renewals after which the cluster may have called the node unknown.
func (n *node) missed() time.Duration { return 5 * n.leasePeriod() / 2 }

// doubtful is how long after such a doubt the cluster may yet call the node's pods not ready.
func (n *node) doubtful() time.Duration { return 3 * n.leasePeriod() }

// leasePeriod is how often the node renews its lease.
func (n *node) leasePeriod() time.Duration { return cmp.Or(n.period, leasePeriod) }

// beat keeps all nodes alive until ctx ends: one wheel for all of them. None waits for another's
// answer, as kubelets do not: where the API server takes a second, each turn would, and the next
// renewals would be late by all of them.
func (f *fleet) beat(ctx context.Context) {
	wheel := f.o.Clock.NewTicker(cmp.Or(f.o.LeasePeriod, leasePeriod) / slots)
	defer wheel.Stop()
	var some errgroup.Group
	some.SetLimit(beatParallel)
	defer func() { _ = some.Wait() }() // pulse logs
	for slot := 0; ; slot = (slot + 1) % slots {
		select {
		case <-ctx.Done():
			return
		case <-wheel.C():
		}
		for i := slot; i < len(f.nodes); i += slots {
			some.Go(func() error {
				f.nodes[i].pulse(ctx, f.o.StatusInterval)
				return nil
			})
		}
	}
}

// pulse renews the lease, and writes the status when it is due or when the cluster may have doubts.
func (n *node) pulse(ctx context.Context, interval time.Duration) {
	if n.vanished() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	n.mu.Lock()
	doubts, wrote := n.clock.Since(n.beat) > n.missed(), n.wrote
	n.mu.Unlock()
	err := n.renew(ctx)
	if err == nil && !doubts && n.recovering() {
		doubts, err = n.calledUnknown(ctx)
	}
	if doubts {
		n.doubt()
	}
	if err == nil && (doubts || interval > 0 && n.clock.Since(wrote) > interval) {
		err = n.writeStatus(ctx)
	}
	if err == nil && n.doubted() {
		err = n.assertPods(ctx)
	}
	n.note(ctx, err)
}

// doubt notes that the cluster may have called the node unknown, and its pods not ready.
func (n *node) doubt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.doubtedAt = n.clock.Now()
}

func (n *node) doubted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.doubtedAt.IsZero() && n.clock.Since(n.doubtedAt) < n.doubtful()
}

// note logs the first of several failures to report, and the success that ends them.
func (n *node) note(ctx context.Context, err error) {
	n.mu.Lock()
	before := n.silent
	n.silent = err != nil
	n.mu.Unlock()
	if err != nil {
		n.api.outage.note(n.clock.Now())
	}
	switch {
	case err != nil && !before && !errors.Is(err, context.Canceled):
		klog.FromContext(ctx).Error(err, "Node cannot report, trying on", "node", n.name)
	case err == nil && before:
		klog.FromContext(ctx).Info("Node reports again", "node", n.name)
	}
}

// recovering says whether any node's report failed not long ago. An outage of less than a lease's
// period is one that many nodes never see; the cluster may call them unknown all the same.
func (n *node) recovering() bool { return n.api.outage.within(n.clock.Now(), aftermath) }

// outage is when the API server last failed to answer one of the nodes.
type outage struct {
	mu   sync.Mutex
	last time.Time
}

func (o *outage) note(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = now
}

func (o *outage) within(now time.Time, d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.last.IsZero() && now.Sub(o.last) < d
}

// calledUnknown asks whether the cluster takes the node for lost. A kubelet looks at its Node with
// every beat; here only after outages.
func (n *node) calledUnknown(ctx context.Context) (bool, error) {
	object, err := n.api.getNode(ctx, n.name)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}), nil
}

func (n *node) writeStatus(ctx context.Context) error {
	status, err := n.status()
	if err != nil {
		return err
	}
	if _, err := n.api.patchNode(ctx, n.name, "status", map[string]any{"status": status}); err != nil {
		return err
	}
	n.mu.Lock()
	n.wrote = n.clock.Now()
	n.mu.Unlock()
	return nil
}

// renew writes the lease's time, and the whole lease where there is none.
func (n *node) renew(ctx context.Context) error {
	now := metav1.NewMicroTime(n.clock.Now())
	err := n.api.renewLease(ctx, n.name, now)
	if apierrors.IsNotFound(err) {
		err = n.api.createLease(ctx, n.lease(now))
	}
	if apierrors.IsAlreadyExists(err) { // another beat of this node made it at the same moment
		err = n.api.renewLease(ctx, n.name, now)
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.beat = now.Time
	n.mu.Unlock()
	return nil
}

func (n *node) lease(now metav1.MicroTime) *coordinationv1.Lease {
	n.mu.Lock()
	defer n.mu.Unlock()
	seconds := int32(leaseBeats * n.leasePeriod() / time.Second)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name, Namespace: leaseNamespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.uid}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
}
