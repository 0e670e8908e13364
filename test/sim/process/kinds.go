// SPDX-License-Identifier: Apache-2.0

// Package process runs the operator's controllers without goroutines: its caller decides which
// event reaches which cache, and which controller takes which request.
//
// The controllers, their watches, predicates and queues' rate limits are the product's own. What
// stands in for controller-runtime is its manager, its caches (a view of each kind, which is as old
// as it is told to be) and its workers.
package process

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/drover-project/drover/test/sim/memetcd"
)

// kind is one kind of object as a cache holds it: whole or its metadata alone.
type kind struct {
	gvk     schema.GroupVersionKind
	partial bool
}

func (k kind) String() string { return k.gvk.Kind }

// kindOf says which kind's view an object, or a list of such, is read from.
func kindOf(object runtime.Object, scheme *runtime.Scheme) (kind, error) {
	gvk, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return kind{}, err
	}
	switch object.(type) {
	case *metav1.PartialObjectMetadata:
		return kind{gvk, true}, nil
	case *metav1.PartialObjectMetadataList:
		return kind{listed(gvk), true}, nil
	case client.ObjectList:
		return kind{listed(gvk), false}, nil
	}
	return kind{gvk, false}, nil
}

func listed(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	const list = "List"
	gvk.Kind = gvk.Kind[:len(gvk.Kind)-len(list)]
	return gvk
}

// decode makes the object that an API server would have sent of what etcd holds.
func (k kind) decode(scheme *runtime.Scheme, value []byte, revision int64) (client.Object, error) {
	var object client.Object = &metav1.PartialObjectMetadata{}
	if !k.partial {
		made, err := scheme.New(k.gvk)
		if err != nil {
			return nil, err
		}
		typed, ok := made.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T has no metadata", made)
		}
		object = typed
	}
	if err := json.Unmarshal(value, object); err != nil {
		return nil, fmt.Errorf("read a %s: %w", k, err)
	}
	object.SetResourceVersion(strconv.FormatInt(revision, 10))
	object.GetObjectKind().SetGroupVersionKind(k.gvk)
	return object, nil
}

// selection is what a cache holds of a kind, and what it makes of each object.
type selection struct{ options cache.Options }

func (s selection) of(k kind, scheme *runtime.Scheme) (cache.ByObject, error) {
	for object, by := range s.options.ByObject {
		gvk, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return cache.ByObject{}, err
		}
		if gvk == k.gvk {
			return by, nil
		}
	}
	return cache.ByObject{Transform: s.options.DefaultTransform}, nil
}

// keyOf is the object's name of an etcd key below a kind's prefix.
func keyOf(c *memetcd.Change, prefix string, namespaced bool) types.NamespacedName {
	rest := c.Key[len(prefix):]
	if !namespaced {
		return types.NamespacedName{Name: rest}
	}
	for i := range rest {
		if rest[i] == '/' {
			return types.NamespacedName{Namespace: rest[:i], Name: rest[i+1:]}
		}
	}
	return types.NamespacedName{Name: rest}
}
