// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cached reads from the views, and sees its own writes in them, as controller-runtime's client
// does.
type cached struct {
	client.Client
	p *Process
}

func (c *cached) Get(_ context.Context, key client.ObjectKey, out client.Object, options ...client.GetOption) error {
	k, err := kindOf(out, c.p.o.Scheme)
	if err != nil {
		return err
	}
	v := c.p.view(k)
	if !(&client.GetOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency {
		v.until(v.wrote[key])
	}
	found := v.objects[key]
	if found == nil {
		mapping, err := c.p.mapper.RESTMapping(k.gvk.GroupKind(), k.gvk.Version)
		if err != nil {
			return err
		}
		return apierrors.NewNotFound(mapping.Resource.GroupResource(), key.Name)
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

func (c *cached) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	k, err := kindOf(list, c.p.o.Scheme)
	if err != nil {
		return err
	}
	v, o := c.p.view(k), (&client.ListOptions{}).ApplyOptions(options)
	if !o.DisableReadYourWritesConsistency {
		for _, revision := range v.wrote {
			v.until(revision)
		}
	}
	var items []runtime.Object
	for _, object := range v.find(o) {
		if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
			items = append(items, object.DeepCopyObject())
		} else {
			items = append(items, object)
		}
	}
	return meta.SetList(list, items)
}

// write makes a write, and notes at which revision the view has it.
func (c *cached) write(object runtime.Object, key types.NamespacedName, do func() error) error {
	before := c.p.etcd.Revision()
	if err := do(); err != nil {
		return err
	}
	now := c.p.etcd.Revision()
	if now == before {
		return nil
	}
	k, err := kindOf(object, c.p.o.Scheme)
	if err != nil {
		return err
	}
	for _, k := range []kind{k, {k.gvk, !k.partial}} {
		if v := c.p.views[k]; v != nil {
			v.wrote[key] = now
		}
	}
	return nil
}

func (c *cached) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return c.write(o, client.ObjectKeyFromObject(o), func() error { return c.Client.Create(ctx, o, options...) })
}

func (c *cached) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return c.write(o, client.ObjectKeyFromObject(o), func() error { return c.Client.Update(ctx, o, options...) })
}

func (c *cached) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.PatchOption) error {
	return c.write(o, client.ObjectKeyFromObject(o), func() error { return c.Client.Patch(ctx, o, p, options...) })
}

func (c *cached) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return c.write(o, client.ObjectKeyFromObject(o), func() error { return c.Client.Delete(ctx, o, options...) })
}

// applied is what an apply configuration tells about itself.
type applied interface {
	GetKind() *string
	GetAPIVersion() *string
	GetName() *string
	GetNamespace() *string
}

// target is the object that an apply is about.
func (c *cached) target(o runtime.ApplyConfiguration) (runtime.Object, types.NamespacedName, error) {
	a, ok := o.(applied)
	if !ok {
		return nil, types.NamespacedName{}, fmt.Errorf("%T does not name its object", o)
	}
	object, err := c.p.o.Scheme.New(schema.FromAPIVersionAndKind(*a.GetAPIVersion(), *a.GetKind()))
	key := types.NamespacedName{Name: *a.GetName()}
	if namespace := a.GetNamespace(); namespace != nil {
		key.Namespace = *namespace
	}
	return object, key, err
}

func (c *cached) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	object, key, err := c.target(o)
	if err != nil {
		return err
	}
	return c.write(object, key, func() error { return c.Client.Apply(ctx, o, options...) })
}

func (c *cached) Status() client.SubResourceWriter { return &status{c.Client.Status(), c} }

// status writes the status subresource.
type status struct {
	client.SubResourceWriter
	c *cached
}

func (s *status) Update(ctx context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	return s.c.write(o, client.ObjectKeyFromObject(o), func() error { return s.SubResourceWriter.Update(ctx, o, options...) })
}

func (s *status) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
	return s.c.write(o, client.ObjectKeyFromObject(o), func() error { return s.SubResourceWriter.Patch(ctx, o, p, options...) })
}

func (s *status) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
	object, key, err := s.c.target(o)
	if err != nil {
		return err
	}
	return s.c.write(object, key, func() error { return s.SubResourceWriter.Apply(ctx, o, options...) })
}
