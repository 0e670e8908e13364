// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/operator/policies"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/strikes"
)

const (
	// settle, settleMost and settleNode are the pace of passes: a node's event waits for less than a
	// second for its order, also while thousands of nodes are loaded.
	settle     = 200 * time.Millisecond
	settleMost = 750 * time.Millisecond
	settleNode = 150 * time.Microsecond
	// firstBackoff and longBackoff bound the pause after a pass that failed.
	firstBackoff = 50 * time.Millisecond
	longBackoff  = 30 * time.Second
	// passTimeout ends a pass that hangs, as on a cache that has lost its API server.
	passTimeout = 5 * time.Minute
	// workers is how many Modules are worked on at the same time.
	workers = 4
)

func (c *Controller) enqueue(q watch.Queue, module types.NamespacedName) {
	q.AddAfter(reconcile.Request{NamespacedName: module}, c.pace.Wait(module, c.options.Clock.Now()))
}

// SetupWithManager registers the controller and its watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("module").
		For(&v1beta1.Module{}, watch.If(moduleChanged)).
		Watches(&corev1.Node{}, watch.Changes(c.nodeEvent)).
		Watches(&v1beta1.NodeModulesConfig{}, watch.Changes(c.configEvent)).
		Watches(&corev1.Pod{}, watch.Changes(c.podEvent)).
		Watches(&admissionv1.ValidatingAdmissionPolicy{}, handler.EnqueueRequestsFromMapFunc(c.everyModule)).
		Watches(&admissionv1.ValidatingAdmissionPolicyBinding{}, handler.EnqueueRequestsFromMapFunc(c.everyModule)).
		Watches(&v1alpha1.ModulePolicy{}, handler.EnqueueRequestsFromMapFunc(c.everyModule)).
		WatchesMetadata(policies.AnyNamespace(), watch.Changes(c.namespaceEvent)).
		Watches(anyDefinition(), handler.EnqueueRequestsFromMapFunc(c.modulesOfDefinition)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   passTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, longBackoff),
		})
	if c.options.DRA {
		b = b.Watches(&resourcev1.ResourceClaim{}, watch.Changes(c.claimEvent))
	}
	if c.options.Images {
		b = b.Watches(&v1alpha1.ModuleImage{}, watch.Changes(c.imageEvent))
	}
	if err := b.Complete(kube.Traced("module", c)); err != nil {
		return fmt.Errorf("set up the module controller: %w", err)
	}
	return nil
}

// moduleChanged lets a Module's own wish through, not its status.
func moduleChanged(before, now *v1beta1.Module) bool {
	return watch.Rewritten(before, now) || !placement.SameWishes(before, now)
}

func (c *Controller) nodeEvent(ctx context.Context, q watch.Queue, before, now *corev1.Node) {
	switch {
	case before == nil:
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return placement.Selects(m, now) })
	case now == nil:
		// A pass takes the finalizer off its NodeModulesConfig, also for a Module that is gone.
		c.enqueueOrdered(ctx, q, before.Name)
		// A Module that is leaving may wait for exactly this node.
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return m.DeletionTimestamp != nil || placement.Selects(m, before) })
	default:
		c.nodeUpdated(ctx, q, before, now)
	}
}

func (c *Controller) nodeUpdated(ctx context.Context, q watch.Queue, before, now *corev1.Node) {
	if !placement.SameWishes(before, now) || c.retainted(before, now) {
		// A pause, and its end, also concern orders whose Module is gone, and a taint that asks for an
		// unload those of nodes that are no longer selected.
		c.enqueueOrdered(ctx, q, now.Name)
	}
	switch {
	case watch.NodeChanged(before, now), !maps.Equal(before.Labels, now.Labels) && c.reselected(ctx, before, now):
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool {
			return m.DeletionTimestamp != nil || placement.Selects(m, before) || placement.Selects(m, now)
		})
	case !maps.Equal(before.Labels, now.Labels):
		// Most label changes are our own ready labels: only who gains or loses the node, or its
		// version label, is concerned.
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool {
			version := v1beta1.VersionWorkerLabel(m.Namespace, m.Name)
			return placement.Eligible(m, before) != placement.Eligible(m, now) || before.Labels[version] != now.Labels[version]
		})
	}
}

// retainted reports whether a node's taints changed, where some ask for an unload.
func (c *Controller) retainted(before, now *corev1.Node) bool {
	return len(c.options.UnloadTaints) > 0 && !equality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints)
}

// enqueueOrdered queues every Module that a node has an order of.
func (c *Controller) enqueueOrdered(ctx context.Context, q watch.Queue, node string) {
	config := &v1beta1.NodeModulesConfig{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: node}, config, client.DisableReadYourWritesConsistency); err == nil {
		c.enqueueChanged(ctx, q, nil, config)
	}
}

func (c *Controller) configEvent(ctx context.Context, q watch.Queue, before, now *v1beta1.NodeModulesConfig) {
	c.enqueueChanged(ctx, q, before, now)
	switch {
	case before == nil:
	case now == nil:
		node := &corev1.Node{}
		if err := c.client.Get(ctx, client.ObjectKey{Name: before.Name}, node, client.DisableReadYourWritesConsistency); err != nil {
			// Without a node, there is nothing to write. Any other error ends with its next event.
			return
		}
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return placement.Selects(m, node) })
	case !slices.Equal(strikes.Reported(before), strikes.Reported(now)):
		// Whether a strike has an outside cause is seen from those of all Modules.
		c.enqueueStruck(ctx, q)
	}
}

// enqueueChanged queues the Modules whose part of a NodeModulesConfig changed. What only the node's
// status names counts if there is such a Module: a node that makes up names costs nothing.
func (c *Controller) enqueueChanged(ctx context.Context, q watch.Queue, before, now *v1beta1.NodeModulesConfig) {
	for key, ordered := range facts.Changed(before, now) {
		if ordered || c.known(ctx, key) {
			c.enqueue(q, key)
		}
	}
}

// known reports whether the cache has the Module, or cannot tell.
func (c *Controller) known(ctx context.Context, key types.NamespacedName) bool {
	return !apierrors.IsNotFound(c.client.Get(ctx, key, &v1beta1.Module{}, client.DisableReadYourWritesConsistency))
}

// enqueueStruck queues the Modules that strikes are reported of: a verdict changes for no other.
func (c *Controller) enqueueStruck(ctx context.Context, q watch.Queue) {
	struck := map[types.NamespacedName]bool{}
	watch.Each(ctx, c.client, &v1beta1.NodeModulesConfigList{}, func(config *v1beta1.NodeModulesConfig) {
		for _, s := range strikes.Reported(config) {
			struck[s.Module] = true
		}
	})
	for key := range struck {
		c.enqueue(q, key)
	}
}

// podEvent queues the Module of a carrier that comes, goes, begins to go, ends, or gains or loses a
// problem, and that of a driver's pod that is gone: what it leaves can be unloaded.
func (c *Controller) podEvent(_ context.Context, q watch.Queue, before, now *corev1.Pod) {
	pod := cmp.Or(now, before)
	switch {
	case delivery.IsCarrier(pod):
		if before == nil || now == nil || (before.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) ||
			delivery.Ended(before) != delivery.Ended(now) || (delivery.ProblemOf(before) == nil) != (delivery.ProblemOf(now) == nil) {
			c.enqueue(q, carrierOf(pod))
		}
	case now == nil && pod.Labels[v1beta1.RoleLabel] == v1beta1.RoleDRA:
		c.enqueue(q, watch.ModuleOf(pod))
	}
}

// everyModule is for what concerns all: the policy that seals carriers, and ModulePolicies.
func (c *Controller) everyModule(ctx context.Context, _ client.Object) []reconcile.Request {
	return watch.Requests[*v1beta1.Module](ctx, c.client, &v1beta1.ModuleList{}, nil)
}

// modulesOfDefinition is for our own CRDs only. Objects that a finalizer holds may name Modules
// that are gone already.
func (c *Controller) modulesOfDefinition(ctx context.Context, crd client.Object) []reconcile.Request {
	if !slices.Contains(crdNames, crd.GetName()) {
		return nil
	}
	requests := c.everyModule(ctx, crd)
	watch.Each(ctx, c.client, &v1beta1.NodeModulesConfigList{}, func(config *v1beta1.NodeModulesConfig) {
		if nodeplan.Finalized(config) {
			for key := range facts.Changed(nil, config) {
				requests = append(requests, reconcile.Request{NamespacedName: key})
			}
		}
	})
	return requests
}

func (c *Controller) enqueueModules(ctx context.Context, q watch.Queue, concerned func(*v1beta1.Module) bool) {
	for _, request := range watch.Requests(ctx, c.client, &v1beta1.ModuleList{}, concerned) {
		c.enqueue(q, request.NamespacedName)
	}
}

// claimEvent queues the Modules whose driver a claim is about, when pods begin or cease to hold its
// devices.
func (c *Controller) claimEvent(ctx context.Context, q watch.Queue, before, now *resourcev1.ResourceClaim) {
	if before != nil && now != nil && (len(before.Status.ReservedFor) > 0) == (len(now.Status.ReservedFor) > 0) {
		return
	}
	drivers := map[string]bool{}
	for _, claim := range []*resourcev1.ResourceClaim{before, now} {
		if claim == nil || claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			drivers[claim.Status.Allocation.Devices.Results[i].Driver] = true
		}
	}
	if len(drivers) > 0 {
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return m.Spec.DRA != nil && drivers[m.Spec.DRA.DriverName] })
	}
}

// imageEvent queues the Module of an image that is made, or fails to be.
func (c *Controller) imageEvent(_ context.Context, q watch.Queue, before, now *v1alpha1.ModuleImage) {
	c.enqueue(q, watch.ModuleOf(cmp.Or(now, before)))
}
