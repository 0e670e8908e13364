// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// The resources that the cluster's own programs look at.
var (
	Pods       = schema.GroupResource{Resource: "pods"}
	Nodes      = schema.GroupResource{Resource: "nodes"}
	DaemonSets = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
)

// decoded is an object as it was at a revision.
type decoded struct {
	revision int64
	object   client.Object
}

// Revision is that of the newest write.
func (c *Cluster) Revision() int64 { return c.API.Etcd().Revision() }

// Get reads an object as it is now; false: there is none.
func (c *Cluster) Get(o client.Object, key client.ObjectKey) bool {
	gvk, err := apiutil.GVKForObject(o, Scheme)
	must(err)
	mapping, err := Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	must(err)
	path := c.API.Prefix(mapping.Resource.GroupResource()) + strings.TrimPrefix(key.Namespace+"/"+key.Name, "/")
	all, _ := c.API.Etcd().All(path)
	for i := range all {
		if all[i].Key == path {
			must(json.Unmarshal(all[i].Value, o))
			o.SetResourceVersion(fmt.Sprint(all[i].Revision))
			return true
		}
	}
	return false
}

// All are the objects of a resource as they are now, sorted by name, with their versions. They are
// kept: a caller that changes one changes a copy.
func All[T client.Object](c *Cluster, resource schema.GroupResource) []T {
	changes, _ := c.API.Etcd().All(c.API.Prefix(resource))
	all := make([]T, len(changes))
	for i := range changes {
		at := changes[i].Key
		d := c.decoded[at]
		o, ok := d.object.(T)
		if !ok || d.revision != changes[i].Revision {
			o, _ = reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
			must(json.Unmarshal(changes[i].Value, o))
			o.SetResourceVersion(fmt.Sprint(changes[i].Revision))
			c.decoded[at] = decoded{changes[i].Revision, o}
		}
		all[i] = o
	}
	return all
}

// Metadata are the metadata of all objects of a resource, as they are now, sorted by name.
func (c *Cluster) Metadata(resource schema.GroupResource) []metav1.PartialObjectMetadata {
	changes, _ := c.API.Etcd().All(c.API.Prefix(resource))
	all := make([]metav1.PartialObjectMetadata, len(changes))
	for i := range changes {
		must(json.Unmarshal(changes[i].Value, &all[i]))
	}
	return all
}

// Forget ends what is kept of objects that are no more.
func (c *Cluster) Forget() { clear(c.decoded) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
