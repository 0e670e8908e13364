// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/drover-project/drover/test/sim/memetcd"
)

// view is the cache of one kind: what there was at a revision that it has got to.
type view struct {
	process    *Process
	kind       kind
	prefix     string
	namespaced bool
	by         cache.ByObject
	informer   *controllertest.FakeInformer
	objects    map[types.NamespacedName]client.Object
	at         int64 // the revision
	// wrote are the revisions of this process's own writes.
	wrote map[types.NamespacedName]int64
}

// view returns the cache of a kind, which begins with what there is now.
func (p *Process) view(k kind) *view {
	if v := p.views[k]; v != nil {
		return v
	}
	mapping, err := p.mapper.RESTMapping(k.gvk.GroupKind(), k.gvk.Version)
	must(err)
	by, err := selection{p.o.Cache}.of(k, p.o.Scheme)
	must(err)
	v := &view{process: p, kind: k, by: by, prefix: p.o.API.Prefix(mapping.Resource.GroupResource()),
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
		informer:   controllertest.NewFakeInformer(controllertest.Synced),
		objects:    map[types.NamespacedName]client.Object{}, wrote: map[types.NamespacedName]int64{}}
	p.views[k] = v
	v.list()
	return v
}

// list replaces the view with what there is now, as at a start and after a watch that was too old.
func (v *view) list() {
	pairs, revision := v.process.etcd.All(v.prefix)
	now := map[types.NamespacedName]client.Object{}
	for i := range pairs {
		if object := v.admit(&pairs[i]); object != nil {
			now[client.ObjectKeyFromObject(object)] = object
		}
	}
	before := v.objects
	v.objects, v.at = now, revision
	for _, key := range sorted(before) {
		if now[key] == nil {
			v.informer.Delete(before[key])
		}
	}
	for _, key := range sorted(now) {
		switch old := before[key]; {
		case old == nil:
			v.informer.Add(now[key])
		case old.GetResourceVersion() != now[key].GetResourceVersion():
			v.informer.Update(old, now[key])
		}
	}
}

// admit is the object of a change as the cache holds it; nil: it is deleted or not selected.
func (v *view) admit(c *memetcd.Change) client.Object {
	if c.Value == nil {
		return nil
	}
	object, err := v.kind.decode(v.process.o.Scheme, c.Value, c.Revision)
	must(err)
	if v.by.Label != nil && !v.by.Label.Matches(labels.Set(object.GetLabels())) ||
		v.by.Field != nil && !v.by.Field.Matches(fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}) {
		return nil
	}
	if v.by.Transform != nil {
		made, err := v.by.Transform(object)
		must(err)
		object, _ = made.(client.Object)
	}
	return object
}

// pending are the events that the view has not seen.
func (v *view) pending() []memetcd.Change {
	changes, err := v.process.etcd.Since(v.at, v.prefix)
	must(err)
	return changes
}

// deliver brings the next event to the view and to what watches it; false: there is none.
func (v *view) deliver() bool {
	changes := v.pending()
	if len(changes) == 0 {
		return false
	}
	c := &changes[0]
	v.at = c.Revision
	key := keyOf(c, v.prefix, v.namespaced)
	before, now := v.objects[key], v.admit(c)
	switch {
	case now == nil && before == nil:
	case now == nil:
		delete(v.objects, key)
		v.informer.Delete(before)
	case before == nil:
		v.objects[key] = now
		v.informer.Add(now)
	default:
		v.objects[key] = now
		v.informer.Update(before, now)
	}
	return true
}

// until lets the view have a revision.
func (v *view) until(revision int64) {
	for v.at < revision && v.deliver() {
		continue
	}
}

// find returns the objects of a list, in the order of their names.
func (v *view) find(o *client.ListOptions) []client.Object {
	var found []client.Object
	for _, key := range sorted(v.objects) {
		object := v.objects[key]
		if (o.Namespace == "" || o.Namespace == key.Namespace) &&
			(o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels()))) &&
			(o.FieldSelector == nil || v.indexed(object, o.FieldSelector)) {
			found = append(found, object)
		}
	}
	return found
}

func (v *view) indexed(object client.Object, selector fields.Selector) bool {
	for _, r := range selector.Requirements() {
		index := v.process.indexes[indexKey{v.kind, r.Field}]
		if index == nil {
			panic(fmt.Sprintf("no index %s of %s", r.Field, v.kind))
		}
		if !slices.Contains(index(object), r.Value) {
			return false
		}
	}
	return true
}

func sorted[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(m), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
