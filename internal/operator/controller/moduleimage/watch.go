// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
)

const (
	workers = 4
	// passTimeout ends a pass that hangs, for example on a cache that has lost its API server.
	passTimeout = 5 * time.Minute
)

// SetupWithManager registers both reconcilers and their watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(c.setupImages(mgr), c.setupWants(mgr))
}

// ImagesAlone runs the Jobs of ModuleImages on a hub, which has no Modules.
type ImagesAlone struct{ *Controller }

// SetupWithManager registers the reconciler of ModuleImages, and its watches.
func (c ImagesAlone) SetupWithManager(mgr ctrl.Manager) error { return c.setupImages(mgr) }

func (c *Controller) setupImages(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("moduleimage").
		For(&v1alpha1.ModuleImage{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&batchv1.Job{}).
		Watches(&v1alpha1.ModuleImage{}, handler.EnqueueRequestsFromMapFunc(c.imagesOfName),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(c.imagesOfPod)).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.imagesOfEnvironment),
			builder.WithPredicates(predicate.NewPredicateFuncs(isEnvironment))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout, RateLimiter: kube.Backoff(),
		}).
		Complete(kube.Traced("moduleimage", reconcile.Func(c.Image)))
	if err != nil {
		return fmt.Errorf("set up the controller of images: %w", err)
	}
	return nil
}

func (c *Controller) setupWants(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("moduleimage-wants").
		For(&v1beta1.Module{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.ModuleImage{}, handler.EnqueueRequestsFromMapFunc(watch.Module),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, watch.Changes(c.nodeEvent)).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.modulesOfSource)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout, RateLimiter: kube.Backoff(),
		}).
		Complete(kube.Traced("moduleimage-wants", reconcile.Func(c.Module)))
	if err != nil {
		return fmt.Errorf("set up the controller of wanted images: %w", err)
	}
	return nil
}

// nodeEvent queues the Modules whose images depend on a node's change. Nodes change all the time,
// and each pass of a Module reads all nodes.
func (c *Controller) nodeEvent(ctx context.Context, q watch.Queue, before, now *corev1.Node) {
	before, now = cmp.Or(before, &corev1.Node{}), cmp.Or(now, &corev1.Node{})
	was, _ := kernel.PlatformOf(&before.Status.NodeInfo)
	if is, _ := kernel.PlatformOf(&now.Status.NodeInfo); is == was && maps.Equal(before.Labels, now.Labels) {
		return
	}
	for _, request := range c.modules(ctx, func(m *v1beta1.Module) bool { return concerns(m, before, now) }) {
		q.Add(request)
	}
}

// concerns reports whether a node's change adds or removes a platform of a Module.
func concerns(m *v1beta1.Module, before, now *corev1.Node) bool {
	old, noOld := kernel.PlatformOf(&before.Status.NodeInfo)
	next, noNext := kernel.PlatformOf(&now.Status.NodeInfo)
	was, is := noOld == nil && placement.Eligible(m, before), noNext == nil && placement.Eligible(m, now)
	return was != is || is && old != next
}

// imagesOfName are those that share a name with the image that changed.
func (c *Controller) imagesOfName(ctx context.Context, object client.Object) []reconcile.Request {
	changed, ok := object.(*v1alpha1.ModuleImage)
	if !ok {
		return nil
	}
	return c.imagesIn(ctx, changed.Namespace, func(other *v1alpha1.ModuleImage) bool {
		return other.UID != changed.UID && pipeline.Share(&changed.Spec, &other.Spec) != ""
	})
}

// imagesOfPod is the image of a Job's pod, or, for a carrier without its image, all of the Module.
func (c *Controller) imagesOfPod(ctx context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	if name := pod.Labels[v1alpha1.ImageLabel]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: name}}}
	}
	if p := delivery.ProblemOf(pod); !delivery.IsCarrier(pod) || p == nil || p.Reason != v1beta1.ReasonImageNotFound {
		return nil
	}
	return c.imagesIn(ctx, pod.Namespace, func(image *v1alpha1.ModuleImage) bool {
		return image.Labels[v1beta1.ModuleNameLabel] == pod.Labels[v1beta1.ModuleNameLabel]
	})
}

func isEnvironment(object client.Object) bool {
	return object.GetName() == pipeline.EnvironmentConfigMap
}

func (c *Controller) imagesOfEnvironment(ctx context.Context, environment client.Object) []reconcile.Request {
	return c.imagesIn(ctx, environment.GetNamespace(), nil)
}

func (c *Controller) imagesIn(ctx context.Context, namespace string, concerned func(*v1alpha1.ModuleImage) bool) []reconcile.Request {
	return watch.Requests(ctx, c.client, &v1alpha1.ModuleImageList{}, concerned, client.InNamespace(namespace))
}

// modulesOfSource are the Modules of a ConfigMap's namespace that name it.
func (c *Controller) modulesOfSource(ctx context.Context, source client.Object) []reconcile.Request {
	return c.modules(ctx, func(m *v1beta1.Module) bool { return slices.Contains(pipeline.Sources(m), source.GetName()) },
		client.InNamespace(source.GetNamespace()))
}

// modules are those that build or sign and are concerned.
func (c *Controller) modules(ctx context.Context, concerned func(*v1beta1.Module) bool, in ...client.ListOption) []reconcile.Request {
	makes := func(m *v1beta1.Module) bool { return pipeline.Makes(m) && concerned(m) }
	return watch.Requests(ctx, c.client, &v1beta1.ModuleList{}, makes, in...)
}
