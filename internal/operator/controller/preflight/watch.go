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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/watch"
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
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.all), watch.If(architectureChanged)).
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

func architectureChanged(before, now *corev1.Node) bool {
	return before.Status.NodeInfo.Architecture != now.Status.NodeInfo.Architecture
}

// all are all preflights: each may depend on a Module or a node.
func (c *Controller) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return watch.Requests[*v1beta2.PreflightValidation](ctx, c.client, &v1beta2.PreflightValidationList{}, nil)
}

// ofSource are all preflights if a Module builds from the ConfigMap.
func (c *Controller) ofSource(ctx context.Context, source client.Object) []reconcile.Request {
	requests := c.all(ctx, source)
	if len(requests) == 0 {
		return nil
	}
	builds := func(m *v1beta1.Module) bool { return slices.Contains(pipeline.Sources(m), source.GetName()) }
	if len(watch.Requests(ctx, c.client, &v1beta1.ModuleList{}, builds, client.InNamespace(source.GetNamespace()))) == 0 {
		return nil
	}
	return requests
}
