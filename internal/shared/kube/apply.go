// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Convert turns a value into the apply configuration of its type. The writer owns every field that
// the value's JSON form has.
func Convert[Config any](value any) (*Config, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", value, err)
	}
	config := new(Config)
	if err := json.Unmarshal(text, config); err != nil {
		return nil, fmt.Errorf("decode %T from %T: %w", config, value, err)
	}
	return config, nil
}

// Apply writes objects by server-side apply and takes fields from other owners where they differ.
// It goes on after an error and returns all of them.
func Apply(ctx context.Context, c client.Client, owner client.FieldOwner, objects ...runtime.ApplyConfiguration) error {
	var errs []error
	for _, object := range objects {
		if err := c.Apply(ctx, object, owner, client.ForceOwnership); err != nil {
			errs = append(errs, fmt.Errorf("apply %T: %w", object, err))
		}
	}
	return errors.Join(errs...)
}

// ApplyStatus writes an object's status by server-side apply. Give the whole status: fields that
// the owner wrote before and leaves out now are removed.
func ApplyStatus(ctx context.Context, c client.Client, owner client.FieldOwner, object runtime.ApplyConfiguration) error {
	if err := c.Status().Apply(ctx, object, owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply the status of %T: %w", object, err)
	}
	return nil
}

// Prune deletes those objects that keep refuses, since apply never deletes. It goes on after an
// error and returns all of them.
func Prune[T client.Object](ctx context.Context, c client.Client, have []T, keep func(T) bool) error {
	var errs []error
	for _, object := range have {
		if keep(object) || object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := Delete(ctx, c, object); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Delete deletes the object that was read, never a later one of its name. It may be gone already.
func Delete(ctx context.Context, c client.Client, object client.Object) error {
	return remove(ctx, c, object, client.Preconditions{UID: ptr.To(object.GetUID())})
}

// DeleteUnchanged deletes the object as it was read; it returns a conflict if it has changed since.
func DeleteUnchanged(ctx context.Context, c client.Client, object client.Object) error {
	return remove(ctx, c, object, client.Preconditions{UID: ptr.To(object.GetUID()), ResourceVersion: ptr.To(object.GetResourceVersion())})
}

func remove(ctx context.Context, c client.Client, object client.Object, only client.Preconditions) error {
	err := c.Delete(ctx, object, only, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// Outdated reports whether a write failed only because what it was based on has changed.
func Outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// Each calls do for every item, at most limit at a time, and joins all errors, so that one object
// does not keep others from being written. It starts no more calls once ctx has ended.
func Each[T any](ctx context.Context, limit int, items []T, do func(context.Context, T) error) error {
	var group errgroup.Group
	group.SetLimit(limit)
	errs := make([]error, len(items))
	for i, item := range items {
		if errs[i] = ctx.Err(); errs[i] != nil {
			break
		}
		group.Go(func() error {
			errs[i] = do(ctx, item)
			return nil
		})
	}
	_ = group.Wait() // errs has them
	return errors.Join(errs...)
}

// AddFinalizer puts a finalizer on the object that was read, if it is missing. It returns a
// conflict if the object has changed since, because the list is written as a whole.
func AddFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) error {
	return patchFinalizer(ctx, c, object, finalizer, controllerutil.AddFinalizer)
}

// RemoveFinalizer takes a finalizer off, on the same terms. An object that is gone is no error.
func RemoveFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) error {
	if err := patchFinalizer(ctx, c, object, finalizer, controllerutil.RemoveFinalizer); client.IgnoreNotFound(err) != nil {
		return err
	}
	return nil
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
