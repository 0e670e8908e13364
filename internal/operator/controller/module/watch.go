// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/strikes"
)

const (
	// settle is how long an event waits for others like it: a pass looks at all nodes.
	settle = 200 * time.Millisecond
	// firstBackoff and longBackoff bound the pause after a pass that failed.
	firstBackoff = 50 * time.Millisecond
	longBackoff  = 30 * time.Second
	// passTimeout ends a pass that hangs, as on a cache that has lost its API server.
	passTimeout = 5 * time.Minute
	// workers is how many Modules are worked on at the same time.
	workers = 4
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func enqueue(q queue, module types.NamespacedName) {
	q.AddAfter(reconcile.Request{NamespacedName: module}, settle)
}

// SetupWithManager registers the controller and its watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("module").
		For(&v1beta1.Module{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: moduleChanged})).
		Watches(&corev1.Node{}, handler.Funcs{CreateFunc: c.nodeCreated, UpdateFunc: c.nodeUpdated, DeleteFunc: c.nodeDeleted}).
		Watches(&v1beta1.NodeModulesConfig{}, handler.Funcs{
			CreateFunc: c.configCreated, UpdateFunc: c.configUpdated, DeleteFunc: c.configDeleted,
		}).
		Watches(&corev1.Pod{}, handler.Funcs{CreateFunc: carrierCreated, UpdateFunc: carrierUpdated, DeleteFunc: carrierDeleted}).
		Watches(&admissionv1.ValidatingAdmissionPolicy{}, handler.EnqueueRequestsFromMapFunc(c.everyModule)).
		Watches(&admissionv1.ValidatingAdmissionPolicyBinding{}, handler.EnqueueRequestsFromMapFunc(c.everyModule)).
		Watches(definition(), handler.EnqueueRequestsFromMapFunc(c.modulesOfDefinition)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   passTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, longBackoff),
		})
	if c.options.DRA {
		b = b.Watches(&resourcev1.ResourceClaim{}, c.claimEvents())
	}
	if c.options.Images {
		b = b.Watches(&v1alpha1.ModuleImage{}, imageEvents())
	}
	if err := b.Complete(c); err != nil {
		return fmt.Errorf("set up the module controller: %w", err)
	}
	return nil
}

// moduleChanged lets a Module's own wish through, not its status.
func moduleChanged(e event.UpdateEvent) bool {
	return e.ObjectNew.GetGeneration() != e.ObjectOld.GetGeneration() ||
		e.ObjectNew.GetUID() != e.ObjectOld.GetUID() ||
		(e.ObjectNew.GetDeletionTimestamp() == nil) != (e.ObjectOld.GetDeletionTimestamp() == nil) ||
		!placement.SameWishes(e.ObjectNew, e.ObjectOld)
}

func (c *Controller) nodeCreated(ctx context.Context, e event.CreateEvent, q queue) {
	c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return nodeConcerns(m, e.Object) })
}

func (c *Controller) nodeDeleted(ctx context.Context, e event.DeleteEvent, q queue) {
	// A pass takes the finalizer off its NodeModulesConfig, also for a Module that is gone.
	c.enqueueOrdered(ctx, q, e.Object.GetName())
	// A Module that is leaving may wait for exactly this node.
	c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return m.DeletionTimestamp != nil || nodeConcerns(m, e.Object) })
}

func (c *Controller) nodeUpdated(ctx context.Context, e event.UpdateEvent, q queue) {
	before, okBefore := e.ObjectOld.(*corev1.Node)
	now, okNow := e.ObjectNew.(*corev1.Node)
	if !okBefore || !okNow {
		return
	}
	if !placement.SameWishes(before, now) {
		// A pause, and its end, also concern orders whose Module is gone.
		c.enqueueOrdered(ctx, q, now.Name)
	}
	if !nodeFactsEqual(before, now) {
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool {
			return m.DeletionTimestamp != nil || placement.Selects(m, before) || placement.Selects(m, now)
		})
		return
	}
	if !equality.Semantic.DeepEqual(before.Labels, now.Labels) {
		// Most label changes are our own ready labels: only who gains or loses the node, or its
		// version label, is concerned.
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool {
			version := v1beta1.VersionWorkerLabel(m.Namespace, m.Name)
			return placement.Eligible(m, before) != placement.Eligible(m, now) || before.Labels[version] != now.Labels[version]
		})
	}
}

// enqueueOrdered queues every Module that a node has an order of.
func (c *Controller) enqueueOrdered(ctx context.Context, q queue, node string) {
	config := &v1beta1.NodeModulesConfig{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: node}, config, client.DisableReadYourWritesConsistency); err == nil {
		c.enqueueChanged(ctx, q, nil, config)
	}
}

// nodeFactsEqual compares what a plan reads of a node, labels aside.
func nodeFactsEqual(a, b *corev1.Node) bool {
	return a.UID == b.UID &&
		equality.Semantic.DeepEqual(a.Status.NodeInfo, b.Status.NodeInfo) &&
		placement.Ready(a) == placement.Ready(b) &&
		placement.SameWishes(a, b) &&
		equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints)
}

func nodeConcerns(m *v1beta1.Module, object client.Object) bool {
	node, ok := object.(*corev1.Node)
	return ok && placement.Selects(m, node)
}

func (c *Controller) configCreated(ctx context.Context, e event.CreateEvent, q queue) {
	c.enqueueChanged(ctx, q, nil, e.Object)
}

func (c *Controller) configUpdated(ctx context.Context, e event.UpdateEvent, q queue) {
	c.enqueueChanged(ctx, q, e.ObjectOld, e.ObjectNew)
	if !slices.Equal(struckBy(e.ObjectOld), struckBy(e.ObjectNew)) {
		// Whether a strike has an outside cause is seen from those of all Modules.
		c.enqueueStruck(ctx, q)
	}
}

// configDeleted queues the Modules that it named and those that select its node.
func (c *Controller) configDeleted(ctx context.Context, e event.DeleteEvent, q queue) {
	c.enqueueChanged(ctx, q, e.Object, nil)
	node := &corev1.Node{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: e.Object.GetName()}, node, client.DisableReadYourWritesConsistency); err != nil {
		// Without a node, there is nothing to write. Any other error ends with its next event.
		return
	}
	c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return placement.Selects(m, node) })
}

// enqueueChanged queues the Modules whose part of a NodeModulesConfig changed. What only the node's
// status names counts if there is such a Module: a node that makes up names costs nothing.
func (c *Controller) enqueueChanged(ctx context.Context, q queue, before, now client.Object) {
	was, _ := before.(*v1beta1.NodeModulesConfig)
	is, _ := now.(*v1beta1.NodeModulesConfig)
	for key, ordered := range facts.Changed(was, is) {
		if ordered || c.known(ctx, key) {
			enqueue(q, key)
		}
	}
}

// known reports whether the cache has the Module, or cannot tell.
func (c *Controller) known(ctx context.Context, key types.NamespacedName) bool {
	return !apierrors.IsNotFound(c.client.Get(ctx, key, &v1beta1.Module{}, client.DisableReadYourWritesConsistency))
}

// struckBy are the strikes that a NodeModulesConfig reports.
func struckBy(object client.Object) []strikes.Strike {
	if config, ok := object.(*v1beta1.NodeModulesConfig); ok {
		return strikes.Reported(config)
	}
	return nil
}

// configs are all NodeModulesConfigs, for an event. A handler has nobody to return an error to.
func (c *Controller) configs(ctx context.Context) []v1beta1.NodeModulesConfig {
	var all v1beta1.NodeModulesConfigList
	if err := c.client.List(ctx, &all, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		log.FromContext(ctx).Error(err, "List NodeModulesConfigs for an event")
	}
	return all.Items
}

// enqueueStruck queues the Modules that strikes are reported of: a verdict changes for no other.
func (c *Controller) enqueueStruck(ctx context.Context, q queue) {
	configs := c.configs(ctx)
	struck := map[types.NamespacedName]bool{}
	for i := range configs {
		for _, s := range strikes.Reported(&configs[i]) {
			struck[s.Module] = true
		}
	}
	for key := range struck {
		enqueue(q, key)
	}
}

func carrierCreated(_ context.Context, e event.CreateEvent, q queue) { enqueueCarrier(q, e.Object) }

// carrierDeleted is for drivers' pods, too: what they leave can be unloaded.
func carrierDeleted(_ context.Context, e event.DeleteEvent, q queue) {
	enqueueCarrier(q, e.Object)
	if labels := e.Object.GetLabels(); labels[v1beta1.RoleLabel] == roleDRA {
		enqueue(q, types.NamespacedName{Namespace: e.Object.GetNamespace(), Name: labels[v1beta1.ModuleNameLabel]})
	}
}

// carrierUpdated lets through what changes a plan: a carrier that begins to go, ends, or gains or
// loses a problem.
func carrierUpdated(_ context.Context, e event.UpdateEvent, q queue) {
	before, okBefore := e.ObjectOld.(*corev1.Pod)
	now, okNow := e.ObjectNew.(*corev1.Pod)
	if !okBefore || !okNow {
		return
	}
	if (before.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) ||
		delivery.Ended(before) != delivery.Ended(now) ||
		(delivery.ProblemOf(before) == nil) != (delivery.ProblemOf(now) == nil) {
		enqueueCarrier(q, now)
	}
}

func enqueueCarrier(q queue, pod client.Object) {
	if delivery.IsCarrier(pod) {
		enqueue(q, carrierOf(pod))
	}
}

// everyModule is for what concerns all: the policy that seals carriers.
func (c *Controller) everyModule(ctx context.Context, _ client.Object) []reconcile.Request {
	return c.requests(ctx, func(*v1beta1.Module) bool { return true })
}

// modulesOfDefinition is for our own CRDs only. Objects that a finalizer holds may name Modules
// that are gone already.
func (c *Controller) modulesOfDefinition(ctx context.Context, crd client.Object) []reconcile.Request {
	if !slices.Contains(crdNames, crd.GetName()) {
		return nil
	}
	requests := c.everyModule(ctx, crd)
	configs := c.configs(ctx)
	for i := range configs {
		if nodeplan.Finalized(&configs[i]) {
			for key := range facts.Changed(nil, &configs[i]) {
				requests = append(requests, reconcile.Request{NamespacedName: key})
			}
		}
	}
	return requests
}

func (c *Controller) enqueueModules(ctx context.Context, q queue, concerned func(*v1beta1.Module) bool) {
	for _, request := range c.requests(ctx, concerned) {
		enqueue(q, request.NamespacedName)
	}
}

func (c *Controller) requests(ctx context.Context, concerned func(*v1beta1.Module) bool) []reconcile.Request {
	var modules v1beta1.ModuleList
	if err := c.client.List(ctx, &modules, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		log.FromContext(ctx).Error(err, "List Modules for an event")
		return nil
	}
	var requests []reconcile.Request
	for i := range modules.Items {
		if concerned(&modules.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&modules.Items[i])})
		}
	}
	return requests
}

// claimChanged queues the Modules whose driver a claim is about.
func (c *Controller) claimChanged(ctx context.Context, q queue, objects ...client.Object) {
	drivers := map[string]bool{}
	for _, object := range objects {
		claim, ok := object.(*resourcev1.ResourceClaim)
		if !ok || claim.Status.Allocation == nil {
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

// claimEvents lets through what begins or ends that pods hold devices.
func (c *Controller) claimEvents() handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { c.claimChanged(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { c.claimChanged(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, okBefore := e.ObjectOld.(*resourcev1.ResourceClaim)
			now, okNow := e.ObjectNew.(*resourcev1.ResourceClaim)
			if okBefore && okNow && (len(before.Status.ReservedFor) > 0) != (len(now.Status.ReservedFor) > 0) {
				c.claimChanged(ctx, q, before, now)
			}
		},
	}
}

// imageEvents queues the Module of an image that is made, or fails to be.
func imageEvents() handler.Funcs {
	add := func(q queue, object client.Object) {
		enqueue(q, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetLabels()[v1beta1.ModuleNameLabel]})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(q, e.Object) },
	}
}
