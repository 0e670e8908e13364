// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
)

const (
	workers = 4
	// passTimeout ends a pass that hangs.
	passTimeout = 5 * time.Minute
	// waiting is more events than all clusters report in a burst.
	waiting = 4096
	// together is how long to wait for further reports.
	together = 500 * time.Millisecond
	// atOnce is how many clusters are written to at a time: some may hang.
	atOnce = 32
	// firstRetry and lastRetry bound the pause after a failed pass, as soak times end meanwhile.
	firstRetry, lastRetry = time.Second, time.Minute
)

// SetupWithManager registers the controller, its watches and the transports' watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	said := make(chan event.GenericEvent, waiting)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("hub").
		For(&hubv1beta1.ManagedClusterModule{},
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.ModuleImage{}, handler.EnqueueRequestsFromMapFunc(watch.Wanting(hub.WantedBy("")))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.ofSource)).
		WatchesRawSource(source.Channel(said, handler.Funcs{GenericFunc: c.said})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(kube.Traced("hub", c))
	if err != nil {
		return fmt.Errorf("set up the controller of ManagedClusterModules: %w", err)
	}
	for _, t := range c.options.Transports {
		if err := mgr.Add(watching(t, said)); err != nil {
			return fmt.Errorf("set up transport %s: %w", t.Name(), err)
		}
	}
	return nil
}

// watching has a transport watch its clusters as long as this process leads.
func watching(t hub.Transport, said chan<- event.GenericEvent) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("transport", t.Name()))
		return t.Watch(ctx, func(name string) {
			m := &hubv1beta1.ManagedClusterModule{}
			m.Name = name
			select {
			case said <- event.GenericEvent{Object: m}:
			case <-ctx.Done():
			}
		})
	})
}

// said queues what a transport names, late: a pass looks at all clusters, and many report at a
// time.
func (c *Controller) said(ctx context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for _, request := range c.concerned(ctx, e.Object) {
		q.AddAfter(request, together)
	}
}

// concerned is the ManagedClusterModule that a transport named, or all.
func (c *Controller) concerned(ctx context.Context, object client.Object) []reconcile.Request {
	if name := object.GetName(); name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	return c.all(ctx, nil)
}

// ofSource are the ManagedClusterModules that build from a ConfigMap.
func (c *Controller) ofSource(ctx context.Context, source client.Object) []reconcile.Request {
	if source.GetNamespace() != c.options.Namespace {
		return nil
	}
	return c.all(ctx, func(m *hubv1beta1.ManagedClusterModule) bool {
		return slices.Contains(pipeline.Sources(hub.Whole(m)), source.GetName())
	})
}

func (c *Controller) all(ctx context.Context, chosen func(*hubv1beta1.ManagedClusterModule) bool) []reconcile.Request {
	return watch.Requests(ctx, c.client, &hubv1beta1.ManagedClusterModuleList{}, chosen)
}
