// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/drover-project/drover/internal/shared/kube"
)

// children returns the desired children, or writes the first that differs and ends the pass.
func (r *Reconciler[O]) children(ctx context.Context, o O, desired []client.Object) ([]client.Object, error) {
	var children []client.Object
	for _, want := range desired {
		have, err := r.child(ctx, o, want)
		if err != nil {
			return nil, err
		}
		children = append(children, have)
	}
	return children, nil
}

func (r *Reconciler[O]) child(ctx context.Context, o O, want client.Object) (client.Object, error) {
	wish, err := r.wish(o, want)
	if err != nil {
		return nil, err
	}
	have, err := r.find(ctx, wish)
	if err != nil {
		return nil, err
	}
	if have == nil {
		if err := r.apply(ctx, wish); err != nil {
			return nil, r.explain(ctx, o, want, err)
		}
		return nil, errStep
	}
	switch {
	case !have.GetDeletionTimestamp().IsZero(): // whatever its owner, such as a former object of this name
		return nil, &Problem{
			Reason: ReasonTerminating, RetryAfter: retryAfter,
			Message: fmt.Sprintf("%s is being deleted; it is created again when it is gone", r.name(have)),
		}
	case !metav1.IsControlledBy(have, o):
		return nil, &Problem{
			Reason: ReasonNameConflict, Errored: true, RetryAfter: retryAfter,
			Message: fmt.Sprintf("%s does not belong to %s: delete or rename one of them", r.name(have), r.name(o)),
		}
	}
	settled, err := kube.Settled(wish, have)
	if err != nil || settled {
		return have, err
	}
	// Force takes back fields that others changed, of this very object only.
	wish.SetUID(have.GetUID())
	if err := r.apply(ctx, wish, client.ForceOwnership); err != nil {
		return nil, r.explain(ctx, o, want, err)
	}
	if wish.GetResourceVersion() == have.GetResourceVersion() {
		return have, nil // the API server found nothing to change
	}
	return nil, errStep
}

// wish completes a desired child.
func (r *Reconciler[O]) wish(o O, want client.Object) (*unstructured.Unstructured, error) {
	kind, err := apiutil.GVKForObject(want, r.client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("name the kind of %T: %w", want, err)
	}
	want = copyOf(want)
	if want.GetNamespace() == "" {
		want.SetNamespace(o.GetNamespace())
	}
	if err := controllerutil.SetControllerReference(o, want, r.client.Scheme()); err != nil {
		return nil, fmt.Errorf("own %s %s: %w", kind.Kind, want.GetName(), err)
	}
	return kube.Wish(want, kind)
}

// find returns the object of the name, whatever its owner, or nil. The cache may be late.
func (r *Reconciler[O]) find(ctx context.Context, wish *unstructured.Unstructured) (client.Object, error) {
	have, err := makeNew[client.Object](r.client.Scheme(), wish.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(wish)
	err = r.client.Get(ctx, key, have)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, have)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", wish.GetKind(), wish.GetName(), err)
	}
	return have, nil
}

// apply writes a child, a new one without force: another writer may have made one meanwhile.
func (r *Reconciler[O]) apply(ctx context.Context, wish *unstructured.Unstructured, options ...client.ApplyOption) error {
	options = append(options, client.FieldOwner(r.op.Name))
	if err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wish), options...); err != nil {
		return fmt.Errorf("apply %s %s: %w", wish.GetKind(), wish.GetName(), err)
	}
	return nil
}

func (r *Reconciler[O]) explain(ctx context.Context, o O, child client.Object, refusal error) error {
	if r.op.Explain != nil && !kube.Outdated(refusal) {
		if err := r.op.Explain(ctx, copyOf(o), child, refusal); err != nil {
			return err
		}
	}
	return refusal
}

// prune deletes the first child that is no longer desired and ends the pass.
func (r *Reconciler[O]) prune(ctx context.Context, o O, desired []client.Object) error {
	for _, kind := range r.op.Children {
		owned, err := r.owned(ctx, r.client, o, kind)
		if err != nil {
			return err
		}
		for _, child := range owned {
			wanted := slices.ContainsFunc(desired, func(d client.Object) bool { return d.GetUID() == child.GetUID() })
			if wanted || !child.GetDeletionTimestamp().IsZero() {
				continue
			}
			if err := kube.Delete(ctx, r.client, child); err != nil {
				return err
			}
			return errStep
		}
	}
	return nil
}

// owned are the objects of a kind that belong to o.
func (r *Reconciler[O]) owned(ctx context.Context, reader client.Reader, o O, kind client.Object) ([]client.Object, error) {
	gvk, err := apiutil.GVKForObject(kind, r.client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("name the kind of %T: %w", kind, err)
	}
	list, err := makeNew[client.ObjectList](r.client.Scheme(), gvk.GroupVersion().WithKind(gvk.Kind+"List"))
	if err != nil {
		return nil, err
	}
	if err := reader.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
		return nil, fmt.Errorf("list objects of kind %s: %w", gvk.Kind, err)
	}
	all, err := items[client.Object](list)
	return slices.DeleteFunc(all, func(object client.Object) bool { return !metav1.IsControlledBy(object, o) }), err
}

// items are a list's.
func items[T any](list client.ObjectList) ([]T, error) {
	var all []T
	err := meta.EachListItem(list, func(item runtime.Object) error {
		one, ok := item.(T)
		if !ok {
			return fmt.Errorf("a %T is in it", item)
		}
		all = append(all, one)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read a %T: %w", list, err)
	}
	return all, nil
}

func makeNew[T any](scheme *runtime.Scheme, kind schema.GroupVersionKind) (T, error) {
	object, err := scheme.New(kind)
	typed, ok := object.(T)
	switch {
	case err != nil:
		return typed, fmt.Errorf("make a %s: %w", kind.Kind, err)
	case !ok:
		return typed, fmt.Errorf("make a %s: %T is of another kind", kind.Kind, object)
	}
	return typed, nil
}

// name is an object's kind and name, for people.
func (r *Reconciler[O]) name(object client.Object) string {
	kind, err := apiutil.GVKForObject(object, r.client.Scheme())
	if err != nil {
		return object.GetName()
	}
	return kind.Kind + " " + object.GetName()
}

func copyOf[T client.Object](o T) T {
	c, _ := o.DeepCopyObject().(T)
	return c
}

// emptyOf is an empty object of a Go type, a pointer, of which o may be nil.
func emptyOf[T client.Object](o T) T {
	empty, _ := reflect.New(reflect.TypeOf(o).Elem()).Interface().(T)
	return empty
}
