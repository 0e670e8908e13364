// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/report"
)

// lastStatus is the newest status known: the watch's, or our last write that the watch lacks yet.
func (a *Agent) lastStatus(object *v1beta1.NodeModulesConfig) *v1beta1.NodeModulesConfigStatus {
	if a.applied != nil && a.applied.UID == object.UID {
		// Versions that cannot be compared: at worst, the same status is written twice.
		if order, err := resourceversion.CompareResourceVersion(a.applied.ResourceVersion, object.ResourceVersion); err == nil && order > 0 {
			return &a.applied.Status
		}
		a.applied = nil
	}
	return &object.Status
}

// publish writes the status if it says anything new, and then drops what it no longer claims.
func (a *Agent) publish(ctx context.Context, p *pass, object *v1beta1.NodeModulesConfig, outcomes map[orders.Key]report.Outcome,
	tidy bool) error {
	now, e := a.o.Clock.Now(), p.exec
	need := e.Journal.Needed(e.Orders, e.Held)
	// What came with the node's image stays until its room is needed, and spares orders a carrier.
	baked, err := a.o.Store.Baked()
	if err != nil {
		return err
	}
	maps.Copy(need, baked)
	last := a.lastStatus(object)
	next := report.Status(e.BootID, outcomes, need, last, now)
	ordered := func(k orders.Key) bool { return e.Orders[k] != nil }
	if !report.NeedsWrite(last, next, ordered, e.Held, now) {
		a.writeAfter = time.Time{}
		return nil
	}
	if now.Before(a.writeAfter) || !a.write(ctx, next) || !tidy {
		return nil
	}
	return a.o.Store.Retain(slices.Sorted(maps.Keys(need)))
}

// write applies a status and tells whether it stands. Failures are repeated ever more rarely.
func (a *Agent) write(ctx context.Context, s *v1beta1.NodeModulesConfigStatus) bool {
	logger := klog.FromContext(ctx)
	out, err := a.api.applyStatus(ctx, s)
	switch {
	case err == nil:
		a.applied, a.writeAfter, a.writeFailed = out, time.Time{}, 0
		logger.V(2).Info("Reported", "modules", len(s.Modules), "attempts", len(s.Attempts), "artifacts", len(s.Artifacts))
		return true
	case apierrors.IsNotFound(err):
		// The object is gone; the watch will say so, and a new one gets the whole status.
		a.writeAfter = a.o.Clock.Now().Add(a.o.Resync)
	default:
		a.writeFailed = min(a.writeFailed+1, 6)
		a.writeAfter = a.o.Clock.Now().Add(wait.Jitter(time.Second<<(a.writeFailed-1), 0.5))
		logger.Error(err, "Cannot report, trying again", "after", a.writeAfter)
	}
	return false
}

// dropStaleAcks takes back acknowledgements of unloads whose modules are ordered again, before
// anything is loaded: the operator must never take an old one for an answer to its next order.
// While that fails, those orders wait. If the operator has given others meanwhile, it may have
// taken the old one for their answer: then these are not carried out any more.
func (a *Agent) dropStaleAcks(ctx context.Context, p *pass, object *v1beta1.NodeModulesConfig) {
	last := a.lastStatus(object)
	stale := func(at v1beta1.NodeModuleAttempt) bool {
		return at.State == v1beta1.AttemptAbsent && orders.Present(p.exec.Orders[keyOf(at)])
	}
	if !slices.ContainsFunc(last.Attempts, stale) {
		return
	}
	next := last.DeepCopy()
	next.Attempts = slices.DeleteFunc(next.Attempts, stale)
	if !a.o.Clock.Now().Before(a.writeAfter) && a.write(ctx, next) {
		if versionOf(a.applied) != versionOf(object) {
			a.old = versionOf(object)
		}
		return
	}
	for _, at := range last.Attempts {
		if stale(at) {
			delete(p.exec.Orders, keyOf(at))
		}
	}
}

// version tells a node's orders from those before and after.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(o *v1beta1.NodeModulesConfig) version { return version{o.UID, o.Generation} }

func keyOf(at v1beta1.NodeModuleAttempt) orders.Key {
	return orders.Key{Namespace: at.Namespace, Name: at.Name}
}

// publishForeign reports that the record is not believed, before anything is done that changes it.
func (a *Agent) publishForeign(ctx context.Context, p *pass, object *v1beta1.NodeModulesConfig) error {
	if a.foreign == nil || a.foreignPublished {
		return nil
	}
	outcomes := map[orders.Key]report.Outcome{}
	for _, k := range p.keys() {
		f, err := p.exec.Facts(orders.Task{Key: k})
		if err != nil {
			return err
		}
		outcomes[k] = report.Of(f, nil)
		if orders.Present(f.Order) {
			outcomes[k] = report.Of(f, report.RecordForeign(a.foreign))
		}
	}
	if err := a.publish(ctx, p, object, outcomes, false); err != nil {
		return err
	}
	a.foreignPublished = a.writeAfter.IsZero()
	return nil
}
