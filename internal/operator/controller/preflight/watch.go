// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/build/pipeline"
)

const (
	workers = 2
	// passTimeout ends a pass that hangs, for example on a cache that has lost its API server.
	passTimeout = 5 * time.Minute
)

// SetupWithManager registers the controller and its watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("preflight").
		For(&v1beta2.PreflightValidation{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ModuleImage{}, handler.EnqueueRequestsFromMapFunc(wanting)).
		Watches(&v1beta1.Module{}, handler.EnqueueRequestsFromMapFunc(c.all),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.all),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: architectureChanged})).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.ofSource)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("set up the controller of preflights: %w", err)
	}
	return nil
}

// wanting are the preflights that an image names, also those that are gone.
func wanting(_ context.Context, object client.Object) []reconcile.Request {
	image, ok := object.(*v1alpha1.ModuleImage)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for _, by := range image.Spec.WantedBy {
		if name, ok := strings.CutPrefix(by, pipeline.WantedByPreflight("")); ok {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
	}
	return requests
}

func architectureChanged(e event.UpdateEvent) bool {
	before, okBefore := e.ObjectOld.(*corev1.Node)
	now, okNow := e.ObjectNew.(*corev1.Node)
	return okBefore && okNow && before.Status.NodeInfo.Architecture != now.Status.NodeInfo.Architecture
}

// all are all preflights: each may depend on a Module or a node.
func (c *Controller) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var list v1beta2.PreflightValidationList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		// A handler cannot return an error. The cache only fails when the process ends.
		log.FromContext(ctx).Error(err, "List PreflightValidations for an event")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// ofSource are all preflights if a Module builds from the ConfigMap.
func (c *Controller) ofSource(ctx context.Context, source client.Object) []reconcile.Request {
	requests := c.all(ctx, source)
	if len(requests) == 0 {
		return nil
	}
	var modules v1beta1.ModuleList
	err := c.client.List(ctx, &modules, client.InNamespace(source.GetNamespace()), client.UnsafeDisableDeepCopy,
		client.DisableReadYourWritesConsistency)
	if err != nil {
		log.FromContext(ctx).Error(err, "List Modules for an event")
		return nil
	}
	for i := range modules.Items {
		if slices.Contains(pipeline.Sources(&modules.Items[i]), source.GetName()) {
			return requests
		}
	}
	return nil
}
