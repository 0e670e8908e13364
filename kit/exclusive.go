// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Exclusive lets only one object of a kind have a node, by the rules of [Overlap]. Call Check in
// Operator.Check and Watch in Operator.Watch. The operator's role must allow get, list and watch on
// its own kind, on Modules, and on nodes.
type Exclusive[O Object] struct {
	// List makes an empty list of the kind. Required.
	List func() client.ObjectList
	// Selector returns the labels of the nodes that an object selects, as in its Module. Required.
	Selector func(o O) map[string]string
	// Reason of an object that loses nodes, such as "ConflictingNodeSelector". Required.
	Reason string
}

// Check returns nil if an object may have its nodes, a [Problem] if it loses some of them to
// another object, or the reader's error. The reader may be a cache. Objects that it does not show
// do not count, such as those of other namespaces if the operator is confined to some.
func (e Exclusive[O]) Check(ctx context.Context, reader client.Reader, o O) error {
	all, modules, err := e.read(ctx, reader)
	if err != nil {
		return err
	}
	nodes, err := labelled(ctx, reader)
	if err != nil {
		return err
	}
	if conflict := e.Judge(o, all, modules, nodes); conflict != nil {
		return Refused(e.Reason, "%s %s", kindOf[O](), conflict)
	}
	return nil
}

// Judge is Check without a cluster. An object that is being deleted claims only the nodes of its
// Module, until that is gone: its kernel module must be unloaded before another object loads one.
func (e Exclusive[O]) Judge(o O, all []O, modules []v1beta1.Module, nodes []corev1.Node) *Conflict {
	var others []Claim
	for _, other := range all {
		if other.GetUID() == o.GetUID() {
			continue
		}
		c := e.claim(other, modules)
		if !other.GetDeletionTimestamp().IsZero() {
			if c.Module == nil {
				continue
			}
			c.Selector = c.Module.Spec.Selector
		}
		others = append(others, c)
	}
	return Overlap(e.claim(o, modules), others, nodes)
}

func (e Exclusive[O]) claim(o O, modules []v1beta1.Module) Claim {
	c := Claim{Key: client.ObjectKeyFromObject(o), Selector: e.Selector(o), Created: o.GetCreationTimestamp().Time}
	for i := range modules {
		if modules[i].Namespace == o.GetNamespace() && metav1.IsControlledBy(&modules[i], o) {
			c.Module = &modules[i]
		}
	}
	return c
}

// Moves reports whether an object or a Module selects a node by only one of two sets of labels.
// Most changes of labels do not matter: Drover itself labels nodes with ready kernel modules.
func (e Exclusive[O]) Moves(ctx context.Context, reader client.Reader, before, after map[string]string) (bool, error) {
	all, modules, err := e.read(ctx, reader)
	if err != nil {
		return false, err
	}
	moves := func(selector map[string]string) bool {
		s := labels.SelectorFromSet(selector)
		return s.Matches(labels.Set(before)) != s.Matches(labels.Set(after))
	}
	return slices.ContainsFunc(all, func(o O) bool { return moves(e.Selector(o)) }) ||
		slices.ContainsFunc(modules, func(m v1beta1.Module) bool { return moves(m.Spec.Selector) }), nil
}

// Watch reconciles every object when the result of Check may change: when an object, a Module or
// the labels of a node change.
func (e Exclusive[O]) Watch(mgr ctrl.Manager, b *builder.Builder) *builder.Builder {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
		objects, err := e.all(ctx, mgr.GetClient())
		if err != nil {
			return nil // a cache fails only when it stops
		}
		for _, o := range objects {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		return requests
	})
	moved := predicate.Funcs{UpdateFunc: func(u event.UpdateEvent) bool {
		moves, err := e.Moves(context.Background(), mgr.GetCache(), u.ObjectOld.GetLabels(), u.ObjectNew.GetLabels())
		return moves || err != nil
	}}
	var o O
	return b.
		Watches(emptyOf(o), all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1beta1.Module{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Node{}, all, builder.WithPredicates(predicate.LabelChangedPredicate{}, moved))
}

// read returns all objects of the kind, and all Modules, not to be changed.
func (e Exclusive[O]) read(ctx context.Context, reader client.Reader) ([]O, []v1beta1.Module, error) {
	all, err := e.all(ctx, reader)
	if err != nil {
		return nil, nil, err
	}
	var modules v1beta1.ModuleList
	if err := reader.List(ctx, &modules, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list Modules: %w", err)
	}
	return all, modules.Items, nil
}

// all objects of the kind, not to be changed.
func (e Exclusive[O]) all(ctx context.Context, reader client.Reader) ([]O, error) {
	list := e.List()
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list objects of kind %s: %w", kindOf[O](), err)
	}
	return items[O](list)
}

// kindOf is the kind's name.
func kindOf[O Object]() string { return reflect.TypeFor[O]().Elem().Name() }

// labelled returns the nodes' metadata, all that a cache needs to keep of them.
func labelled(ctx context.Context, reader client.Reader) ([]corev1.Node, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	// They are only read, and there may be thousands.
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	nodes := make([]corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i].ObjectMeta = list.Items[i].ObjectMeta
	}
	return nodes, nil
}

// Claim is an object's claim to nodes.
type Claim struct {
	// Key names the object.
	Key types.NamespacedName
	// Selector chooses nodes by labels, which must all match. An empty one chooses every node.
	Selector map[string]string
	// Created is when the object was created.
	Created time.Time
	// Module is the object's Module, or nil. The object has the nodes that the Module selects.
	Module *v1beta1.Module
}

// Conflict says to whom an object loses nodes.
type Conflict struct {
	// With names the object that gets them, of several the first by name.
	With types.NamespacedName
	// Nodes are the names of all nodes that are lost, in order.
	Nodes []string
}

const namedNodes = 5 // in a message

// String is the conflict as a message.
func (c *Conflict) String() string {
	names := c.Nodes
	if len(names) > namedNodes {
		names = append(slices.Clone(names[:namedNodes]), fmt.Sprintf("and %d more", len(c.Nodes)-namedNodes))
	}
	return fmt.Sprintf("%s has the same nodes (%s): choose others", c.With, strings.Join(names, ", "))
}

// Overlap returns nil if me may have all nodes that it selects, or to whom it loses which of them.
// A node goes to the object whose Module selects it already; if none or both do, to the older one;
// among those of one age, to the first by name. So no two objects that may have their nodes share
// one, and none selects a node that another's Module has. others may contain me.
func Overlap(me Claim, others []Claim, nodes []corev1.Node) *Conflict {
	mine := prepare(&me)
	var rivals []prepared
	for i := range others {
		if others[i].Key != me.Key {
			rivals = append(rivals, prepare(&others[i]))
		}
	}
	var lost []string
	winners := map[types.NamespacedName]bool{}
	for i := range nodes {
		node := labels.Set(nodes[i].Labels)
		if !mine.wants.Matches(node) {
			continue
		}
		kept := true
		for j := range rivals {
			if rivals[j].beats(&mine, node) {
				kept, winners[rivals[j].Key] = false, true
			}
		}
		if !kept {
			lost = append(lost, nodes[i].Name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	return &Conflict{With: slices.MinFunc(slices.Collect(maps.Keys(winners)), compareKeys), Nodes: lost}
}

// prepared is a claim whose selectors are made once, not for each node.
type prepared struct {
	*Claim
	wants, has labels.Selector
}

func prepare(c *Claim) prepared {
	p := prepared{Claim: c, wants: labels.SelectorFromSet(c.Selector), has: labels.Nothing()}
	if c.Module != nil {
		p.has = labels.SelectorFromSet(c.Module.Spec.Selector)
	}
	return p
}

// beats tells whether p keeps another claim, which wants the node, from having it.
func (p *prepared) beats(other *prepared, node labels.Set) bool {
	has := p.has.Matches(node)
	switch {
	case has != other.has.Matches(node):
		return has
	case !p.wants.Matches(node): // both have it, and p is about to leave
		return false
	}
	return cmp.Or(p.Created.Compare(other.Created), compareKeys(p.Key, other.Key)) < 0
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
