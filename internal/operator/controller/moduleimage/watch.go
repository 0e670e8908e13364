// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/placement"
)

const (
	workers = 4
	// passTimeout ends a pass that hangs, for example on a cache that has lost its API server.
	passTimeout = 5 * time.Minute
)

var options = controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout}

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
		WithOptions(options).
		Complete(reconcile.Func(c.Image))
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
		Watches(&v1alpha1.ModuleImage{}, handler.EnqueueRequestsFromMapFunc(moduleOf),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, c.nodeEvents()).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.modulesOfSource)).
		WithOptions(options).
		Complete(reconcile.Func(c.Module))
	if err != nil {
		return fmt.Errorf("set up the controller of wanted images: %w", err)
	}
	return nil
}

func moduleOf(_ context.Context, image client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: image.GetNamespace(),
		Name: image.GetLabels()[v1beta1.ModuleNameLabel]}}}
}

// nodeEvents queues the Modules whose images depend on a node's change. Nodes change all the time,
// and each pass of a Module reads all nodes.
func (c *Controller) nodeEvents() handler.Funcs {
	add := func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], before, now client.Object) {
		old, okOld := before.(*corev1.Node)
		node, okNode := now.(*corev1.Node)
		if !okOld || !okNode {
			return
		}
		for _, request := range c.modules(ctx, "", func(m *v1beta1.Module) bool { return concerns(m, old, node) }) {
			q.Add(request)
		}
	}
	nothing := &corev1.Node{}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, q, nothing, e.Object)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, q, nothing, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			old, okOld := e.ObjectOld.(*corev1.Node)
			node, okNode := e.ObjectNew.(*corev1.Node)
			if okOld && okNode && (platformOf(old) != platformOf(node) || !maps.Equal(old.Labels, node.Labels)) {
				add(ctx, q, old, node)
			}
		},
	}
}

// concerns reports whether a node's change adds or removes a platform of a Module.
func concerns(m *v1beta1.Module, before, now *corev1.Node) bool {
	was, is := placement.Eligible(m, before) && platformOf(before).kernel != "", placement.Eligible(m, now) && platformOf(now).kernel != ""
	return was != is || is && platformOf(before) != platformOf(now)
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
	return c.imagesIn(ctx, environment.GetNamespace(), func(*v1alpha1.ModuleImage) bool { return true })
}

func (c *Controller) imagesIn(ctx context.Context, namespace string, concerned func(*v1alpha1.ModuleImage) bool) []reconcile.Request {
	var images v1alpha1.ModuleImageList
	err := c.client.List(ctx, &images, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		// A handler cannot return an error. The cache only fails when the process ends.
		log.FromContext(ctx).Error(err, "List ModuleImages for an event")
		return nil
	}
	var requests []reconcile.Request
	for i := range images.Items {
		if image := &images.Items[i]; concerned(image) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(image)})
		}
	}
	return requests
}

// modulesOfSource are the Modules of a ConfigMap's namespace that name it.
func (c *Controller) modulesOfSource(ctx context.Context, source client.Object) []reconcile.Request {
	return c.modules(ctx, source.GetNamespace(),
		func(m *v1beta1.Module) bool { return slices.Contains(pipeline.Sources(m), source.GetName()) })
}

// modules are those of a namespace ("": all) that build or sign and are concerned.
func (c *Controller) modules(ctx context.Context, namespace string, concerned func(*v1beta1.Module) bool) []reconcile.Request {
	var list v1beta1.ModuleList
	err := c.client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		log.FromContext(ctx).Error(err, "List Modules for an event")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if m := &list.Items[i]; pipeline.Makes(m) && concerned(m) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		}
	}
	return requests
}
