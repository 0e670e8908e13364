// SPDX-License-Identifier: Apache-2.0

// Package watch is what the controllers' watches have in common: which changes they let through,
// and how events become requests.
package watch

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/placement"
)

// Queue is a controller's.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Changes handles every event by one function. before is nil for a new object, now for one that is
// gone.
func Changes[T client.Object](changed func(ctx context.Context, q Queue, before, now T)) handler.Funcs {
	var none T
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q Queue) {
			if now, ok := e.Object.(T); ok {
				changed(ctx, q, none, now)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) {
			if before, now, ok := pair[T](e); ok {
				changed(ctx, q, before, now)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q Queue) {
			if before, ok := e.Object.(T); ok {
				changed(ctx, q, before, none)
			}
		},
	}
}

// If lets an update through if the object changed in what a controller reads, and all other events.
func If[T client.Object](changed func(before, now T) bool) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now, ok := pair[T](e)
		return ok && changed(before, now)
	}})
}

func pair[T client.Object](e event.UpdateEvent) (before, now T, ok bool) {
	before, okBefore := e.ObjectOld.(T)
	now, okNow := e.ObjectNew.(T)
	return before, now, okBefore && okNow
}

// Each looks at the objects of a kind in the cache, for an event. list is an empty list of them.
func Each[T client.Object](ctx context.Context, c client.Reader, list client.ObjectList, look func(T), options ...client.ListOption) {
	err := c.List(ctx, list, append(options, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)...)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(T); ok {
				look(object)
			}
			return nil
		})
	}
	if err != nil {
		// A handler cannot return an error. The cache fails only when the process ends.
		log.FromContext(ctx).Error(err, "List objects for an event", "list", fmt.Sprintf("%T", list))
	}
}

// Requests are for those objects of a kind that an event concerns; a nil concerned means all.
func Requests[T client.Object](
	ctx context.Context, c client.Reader, list client.ObjectList, concerned func(T) bool, options ...client.ListOption,
) []reconcile.Request {
	var requests []reconcile.Request
	Each(ctx, c, list, func(object T) {
		if concerned == nil || concerned(object) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
	}, options...)
	return requests
}

// Wanting maps a ModuleImage to those who want it, also those that are gone. prefix is what their
// kind's entries of spec.wantedBy begin with.
func Wanting(prefix string) handler.MapFunc {
	return func(_ context.Context, object client.Object) []reconcile.Request {
		image, ok := object.(*v1alpha1.ModuleImage)
		if !ok {
			return nil
		}
		var requests []reconcile.Request
		for _, by := range image.Spec.WantedBy {
			if name, ok := strings.CutPrefix(by, prefix); ok {
				requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			}
		}
		return requests
	}
}

// ModuleOf is the Module that something was made for, by its label. It is in the same namespace.
func ModuleOf(object client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetLabels()[v1beta1.ModuleNameLabel]}
}

// Module maps an object to its Module.
func Module(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: ModuleOf(object)}}
}

// Rewritten reports whether an object has another spec, begins to go, or is another one.
func Rewritten(before, now client.Object) bool {
	return before.GetUID() != now.GetUID() || before.GetGeneration() != now.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil)
}

// NodeChanged compares what orders, and reports on them, depend on, labels aside.
func NodeChanged(before, now *corev1.Node) bool {
	return before.UID != now.UID || !equality.Semantic.DeepEqual(before.Status.NodeInfo, now.Status.NodeInfo) ||
		placement.Ready(before) != placement.Ready(now) ||
		!placement.SameWishes(before, now) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints)
}

// ConfigChanged compares orders, and what the node's agent says of them.
func ConfigChanged(before, now *v1beta1.NodeModulesConfig) bool {
	return before.UID != now.UID ||
		!equality.Semantic.DeepEqual(before.Spec.Modules, now.Spec.Modules) ||
		!equality.Semantic.DeepEqual(before.Status.Modules, now.Status.Modules) ||
		!equality.Semantic.DeepEqual(before.Status.Attempts, now.Status.Attempts)
}
