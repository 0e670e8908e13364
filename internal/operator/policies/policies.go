// SPDX-License-Identifier: Apache-2.0

// Package policies reads ModulePolicies, and the labels of namespaces by which they choose, for the
// controllers that ask them, and says when to ask again.
package policies

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
)

// Read are the ModulePolicies in the cache of c and, if there are any, a namespace's labels. live
// is asked for a namespace that the cache does not have, or is nil. A namespace that is gone has
// none.
func Read(ctx context.Context, c, live client.Reader, namespace string) (modulepolicy.Set, map[string]string, error) {
	var list v1alpha1.ModulePolicyList
	if err := c.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return modulepolicy.Set{}, nil, fmt.Errorf("list ModulePolicies: %w", err)
	}
	set := modulepolicy.Of(list.Items)
	if set.Empty() {
		return set, nil, nil
	}
	key, found := client.ObjectKey{Name: namespace}, AnyNamespace()
	err := c.Get(ctx, key, found)
	if apierrors.IsNotFound(err) && live != nil {
		// The cache may lack a namespace that was made a moment ago.
		found = AnyNamespace()
		err = live.Get(ctx, key, found)
	}
	if client.IgnoreNotFound(err) != nil {
		return modulepolicy.Set{}, nil, fmt.Errorf("get the namespace: %w", err)
	}
	return set, found.Labels, nil
}

// AnyNamespace is an empty namespace of which only the metadata is read.
func AnyNamespace() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

var everyModule func(*v1beta1.Module) bool

// Modules has a controller of Modules look at them when what policies say of them may have changed.
func Modules(b *builder.Builder, c client.Reader) *builder.Builder {
	all := func(ctx context.Context, _ client.Object) []reconcile.Request {
		return watch.Requests(ctx, c, &v1beta1.ModuleList{}, everyModule)
	}
	within := func(ctx context.Context, namespace client.Object) []reconcile.Request {
		return watch.Requests(ctx, c, &v1beta1.ModuleList{}, everyModule, client.InNamespace(namespace.GetName()))
	}
	return b.Watches(&v1alpha1.ModulePolicy{}, handler.EnqueueRequestsFromMapFunc(all)).
		WatchesMetadata(AnyNamespace(), handler.EnqueueRequestsFromMapFunc(within), watch.If(Relabelled))
}

// Relabelled lets through that a namespace's labels change.
func Relabelled(before, now *metav1.PartialObjectMetadata) bool {
	return !maps.Equal(before.Labels, now.Labels)
}
