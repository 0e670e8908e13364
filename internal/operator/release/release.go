// SPDX-License-Identifier: Apache-2.0

// Package release takes off what Drover has put on objects and only a running operator would take
// off, after an uninstall: its finalizers, without which nothing could be deleted any more, and
// what a change in progress or a Module that is gone has left on objects of others (cordons, labels
// and conditions of Nodes, DeviceTaintRules, DeviceClasses). Orders stay as they are, and so do the
// kernel modules on the nodes, with the labels of Modules that are there.
package release

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/hub"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/kube"
)

// held is a kind whose objects have a finalizer of ours.
type held struct {
	kind      schema.GroupVersionKind
	finalizer string
}

// Modules come first: what they are is asked for by their names in NodeModulesConfigs.
var all = []held{
	{hubv1beta1.GroupVersion.WithKind("ManagedClusterModule"), hub.Finalizer},
	{v1beta1.GroupVersion.WithKind("Module"), v1beta1.ModuleFinalizer},
	{v1beta1.GroupVersion.WithKind("NodeModulesConfig"), nodeplan.OrdersFinalizer},
}

// page is how many objects are asked for at once, and parallel how many are written.
const (
	page     = 500
	parallel = 10
)

// All takes it off, and returns from how many objects of each kind. A kind that the cluster does
// not serve has none. While Drover's operator leads, that is an error: it would put all on again.
// While KMM's does, Modules keep their finalizer, Nodes their labels, and DeviceClasses stay, which
// are KMM's as well; kept says why.
func All(ctx context.Context, c client.Client, clock clock.Clock) (released map[string]int, kept string, err error) {
	if err := ended(ctx, c, clock); err != nil {
		return nil, "", err
	}
	if kept, err = peer(ctx, c, clock); err != nil {
		return nil, "", err
	}
	released = map[string]int{}
	var errs []error
	for _, h := range all {
		if kept != "" && h.finalizer == v1beta1.ModuleFinalizer {
			continue
		}
		n, err := h.release(ctx, c)
		if err != nil {
			errs = append(errs, err)
		}
		count(released, h.kind.Kind, n)
	}
	errs = append(errs, others(ctx, c, kept == "", released))
	return released, kept, errors.Join(errs...)
}

func (h held) release(ctx context.Context, c client.Client) (int, error) {
	var holding []metav1.PartialObjectMetadata
	err := pages(ctx, c, listOf(h.kind), func(list *metav1.PartialObjectMetadataList) {
		for _, o := range list.Items {
			if slices.Contains(o.Finalizers, h.finalizer) {
				holding = append(holding, o)
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("list %ss: %w", h.kind.Kind, err)
	}
	return len(holding), kube.Each(ctx, parallel, holding, func(ctx context.Context, o metav1.PartialObjectMetadata) error {
		return h.one(ctx, c, &o)
	})
}

// listOf makes an empty list of a kind's metadata.
func listOf(kind schema.GroupVersionKind) func() *metav1.PartialObjectMetadataList {
	return func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list
	}
}

// pages reads a list to its end. A kind that is not served has no objects.
func pages[L client.ObjectList](ctx context.Context, c client.Client, fresh func() L, each func(L)) error {
	for next := ""; ; {
		list := fresh()
		err := c.List(ctx, list, client.Limit(page), client.Continue(next))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // the caller says what was listed
		}
		each(list)
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// one takes the finalizer off an object. What has changed since is read again.
func (h held) one(ctx context.Context, c client.Client, o *metav1.PartialObjectMetadata) error {
	o.SetGroupVersionKind(h.kind)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { //nolint:wrapcheck // the errors say what was tried
		err := kube.RemoveFinalizer(ctx, c, o, h.finalizer)
		if apierrors.IsConflict(err) {
			if read := client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(o), o)); read != nil {
				return fmt.Errorf("get %s %s: %w", h.kind.Kind, client.ObjectKeyFromObject(o), read)
			}
		}
		return err
	})
}
