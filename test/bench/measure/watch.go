// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lister lists and watches the objects of a list's kind, as an informer does: it goes on where an
// API server ends a watch, as one does on a busy machine when a client reads too slowly.
func Lister(c client.WithWatch, list client.ObjectList, only ...client.ListOption) cache.ListerWatcher {
	with := func(options metav1.ListOptions) []client.ListOption {
		return append(only[:len(only):len(only)], &client.ListOptions{Raw: &options})
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			all := list.DeepCopyObject().(client.ObjectList) //nolint:errcheck // it is a copy of one
			return all, c.List(ctx, all, with(options)...)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list, with(options)...)
		},
	}, c)
}

// Follow shows all objects, and their changes, until seen has seen enough.
func Follow[T client.Object](ctx context.Context, from cache.ListerWatcher, example T, seen func(o T, deleted bool) bool) error {
	_, err := watchtools.UntilWithSync(ctx, from, example, nil, func(e watch.Event) (bool, error) {
		o, ok := e.Object.(T)
		return ok && seen(o, e.Type == watch.Deleted), nil
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", example, err)
	}
	return nil
}

// inform calls seen for each object, each change of it and its end, from when it returns until ctx
// ends.
func inform[T client.Object](ctx context.Context, from cache.ListerWatcher, example T, seen func(o T, deleted bool)) error {
	show := func(o any, deleted bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if o, ok := o.(T); ok {
			seen(o, deleted)
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: from, ObjectType: example,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { show(o, false) }, UpdateFunc: func(_, o any) { show(o, false) }, DeleteFunc: func(o any) { show(o, true) },
		},
	})
	go controller.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		return fmt.Errorf("watch %T: %w", example, context.Cause(ctx))
	}
	return nil
}
