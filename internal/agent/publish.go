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
	if a.o.Place.Idle != "" {
		// Its store is one that is thrown away. What the node holds is as it was, and needs no carrier.
		next.Artifacts = last.Artifacts
	}
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
	a.o.Watchdog.Step("the report to the API server")
	out, err := a.api.applyStatus(ctx, s)
	a.o.Watchdog.Step("what follows the report to the API server")
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
		a.writeAfter = a.o.Clock.Now().Add(a.o.Jitter(time.Second<<(a.writeFailed-1), 0.5))
		logger.Error(err, "Cannot report, trying again", "after", a.writeAfter)
	}
	return false
}

// takeBack takes back acknowledgements of unloads whose modules are ordered again, before anything
// is recorded or loaded: the operator must never take an old one for an answer to its next order.
// It returns the orders to carry out: while that fails, without those. If the operator has given
// others meanwhile, it may have taken the old one for their answer: then none is current.
func (a *Agent) takeBack(ctx context.Context, object *v1beta1.NodeModulesConfig) (spec v1beta1.NodeModulesConfigSpec, current bool) {
	if a.reportedTo != object.UID { // what was tried on another object says nothing about this one
		a.reportedTo, a.writeAfter, a.writeFailed = object.UID, time.Time{}, 0
	}
	last, spec, again := a.lastStatus(object), object.Spec, map[orders.Key]bool{}
	for i := range spec.Modules {
		if m := &spec.Modules[i]; orders.Present(m) {
			again[orders.Key{Namespace: m.Namespace, Name: m.Name}] = true
		}
	}
	stale := func(at v1beta1.NodeModuleAttempt) bool { return at.State == v1beta1.AttemptAbsent && again[keyOf(at)] }
	if !slices.ContainsFunc(last.Attempts, stale) {
		return spec, a.old != versionOf(object)
	}
	next := last.DeepCopy()
	next.Attempts = slices.DeleteFunc(next.Attempts, stale)
	if !a.o.Clock.Now().Before(a.writeAfter) && a.write(ctx, next) {
		if versionOf(a.applied) != versionOf(object) {
			a.old = versionOf(object)
		}
		return spec, a.old != versionOf(object)
	}
	spec.Modules = slices.DeleteFunc(slices.Clone(spec.Modules), func(m v1beta1.NodeModuleSpec) bool {
		return slices.ContainsFunc(last.Attempts, func(at v1beta1.NodeModuleAttempt) bool {
			return stale(at) && at.Namespace == m.Namespace && at.Name == m.Name
		})
	})
	return spec, true
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
