// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// AddFinalizer puts a finalizer on the object that was read, if it is missing. It returns a
// conflict if somebody has written the object since, because the list is written as a whole.
func AddFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) error {
	return patchFinalizer(ctx, c, object, finalizer, controllerutil.AddFinalizer)
}

// RemoveFinalizer takes a finalizer off, on the same terms. An object that is gone is no error.
func RemoveFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) error {
	err := patchFinalizer(ctx, c, object, finalizer, controllerutil.RemoveFinalizer)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func patchFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string,
	change func(client.Object, string) bool) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %T: not an object", object)
	}
	if !change(object, finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, object, patch, OwnerFinalizer); err != nil {
		return fmt.Errorf("patch finalizers of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// UnlessGone is err with what was tried, or nil where the object does not exist.
func UnlessGone(what string, err error) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
