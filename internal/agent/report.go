// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/modprobe"
)

// lastStatus is the newest status known: the watch's, or our own last write that the watch has not shown yet.
func (a *Agent) lastStatus(object *v1beta1.NodeModulesConfig) *v1beta1.NodeModulesConfigStatus {
	if a.applied != nil && a.applied.UID == object.UID {
		// Versions that cannot be compared: trust the watch; at worst the same status is written twice.
		if order, err := resourceversion.CompareResourceVersion(a.applied.ResourceVersion, object.ResourceVersion); err == nil && order > 0 {
			return &a.applied.Status
		}
		a.applied = nil
	}
	return &object.Status
}

// report writes the status if it says anything new, and then lets go of deliveries that it no longer claims, if tidy says so.
func (a *Agent) report(ctx context.Context, p *pass, object *v1beta1.NodeModulesConfig, outcomes map[key]outcome, tidy bool) error {
	now := a.o.Clock.Now()
	need := p.needed()
	last := a.lastStatus(object)
	next := statusOf(p.bootID, outcomes, need, last, now)
	ordered := func(k key) bool { return p.orders[k] != nil }
	if !needsWrite(last, next, ordered, p.held, now) {
		a.writeAfter = time.Time{}
		return nil
	}
	if now.Before(a.writeAfter) || !a.write(ctx, next) || !tidy {
		return nil
	}
	return a.o.Store.Retain(slices.Sorted(maps.Keys(need)))
}

// write applies a status and tells whether it stands. A failure is tried again later, ever more rarely.
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

// dropStaleAcks takes back acknowledgements of unloads whose modules are ordered again, before anything is loaded:
// the operator must never take an old one for an answer to its next order. While that fails, those orders wait.
func (a *Agent) dropStaleAcks(ctx context.Context, p *pass, object *v1beta1.NodeModulesConfig) {
	last := a.lastStatus(object)
	stale := func(at v1beta1.NodeModuleAttempt) bool {
		order := p.orders[key{at.Namespace, at.Name}]
		return at.State == v1beta1.AttemptAbsent && order != nil && order.State != v1beta1.NodeModuleAbsent
	}
	if !slices.ContainsFunc(last.Attempts, stale) {
		return
	}
	next := last.DeepCopy()
	next.Attempts = slices.DeleteFunc(next.Attempts, stale)
	if !a.o.Clock.Now().Before(a.writeAfter) && a.write(ctx, next) {
		return
	}
	for _, at := range last.Attempts {
		if stale(at) {
			delete(p.orders, key{at.Namespace, at.Name})
		}
	}
}

// restore takes up what the last status says was loaded in this boot and still is, where the journal was lost: so that
// it stays reported, and an order to unload it can be carried out.
func (p *pass) restore(last *v1beta1.NodeModulesConfigStatus) error {
	for _, m := range last.Modules {
		k := key{m.Namespace, m.Name}
		config := ptr.Deref(m.Config, v1beta1.ModuleConfig{})
		main := modprobe.Main(&config.Modprobe)
		if p.journal.Loaded[k] != nil || m.BootID != p.bootID || m.Observed == nil || m.Observed.BuiltIn {
			continue
		}
		live, err := p.see([]string{main})
		if err != nil {
			return err
		}
		id := identity(m.Observed.BuildID, m.Observed.SrcVersion)
		if now, ok := live[main]; !ok || now.State != host.StateLive || id == "" || !sameBuild(now, id) {
			continue
		}
		l := &loaded{
			Item: m.ModuleItem, Config: config, Complete: true, Main: main,
			Modules: []loadedModule{{Name: main, BuildID: id, Planned: id, Ours: true}},
			Since:   m.LastTransitionTime, Observed: m.Observed, DeliveryID: m.Observed.Delivery,
			Repairs: m.Observed.Repairs, LastRepair: m.Observed.LastRepair,
		}
		if m.Observed.LoadBegan != nil {
			l.Began = *m.Observed.LoadBegan
		}
		p.journal.Loaded[k] = l
	}
	return nil
}
