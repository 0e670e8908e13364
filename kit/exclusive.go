// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
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

// Exclusive keeps each node with one object of a kind, by the rules of [Overlap]. Check belongs into Operator.Check and Watch into Operator.Watch. The
// operator's role must have get, list and watch on its own kind, on Modules, and on nodes.
type Exclusive[O Object] struct {
	// List makes an empty list of the kind. Required.
	List func() client.ObjectList
	// Selector returns the labels of the nodes that an object selects, as its Module's selector has them. Required.
	Selector func(o O) map[string]string
	// Reason of an object that loses nodes, such as "ConflictingNodeSelector". Required.
	Reason string
}

// Check returns nil if an object may have its nodes, a [Problem] if it loses some of them to another one, and the reader's error if that could not be
// found out. The reader may be a cache; what it does not show is not judged: where an operator is confined to namespaces, objects elsewhere do not count.
func (e Exclusive[O]) Check(ctx context.Context, reader client.Reader, o O) error {
	all, err := e.all(ctx, reader)
	if err != nil {
		return err
	}
	var modules v1beta1.ModuleList
	if err := reader.List(ctx, &modules); err != nil {
		return fmt.Errorf("list Modules: %w", err)
	}
	nodes, err := labelled(ctx, reader)
	if err != nil {
		return err
	}
	if conflict := e.Judge(o, all, modules.Items, nodes); conflict != nil {
		return Refused(e.Reason, "%s %s", kindOf[O](), conflict)
	}
	return nil
}

// Judge is Check without a cluster. An object that is being deleted claims nothing but the nodes of its Module, which are taken until it is gone: the
// kernel module has to be unloaded before another object loads one.
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

// Moves reports whether an object or a Module selects a node by one of the two sets of labels and not by the other. Most changes of labels are no
// matter of theirs: Drover itself labels each node on which a kernel module is ready.
func (e Exclusive[O]) Moves(ctx context.Context, reader client.Reader, before, after map[string]string) (bool, error) {
	all, err := e.all(ctx, reader)
	if err != nil {
		return false, err
	}
	var modules v1beta1.ModuleList
	if err := reader.List(ctx, &modules, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list Modules: %w", err)
	}
	for _, o := range all {
		if moves(e.Selector(o), before, after) {
			return true, nil
		}
	}
	for i := range modules.Items {
		if moves(modules.Items[i].Spec.Selector, before, after) {
			return true, nil
		}
	}
	return false, nil
}

func moves(selector, before, after map[string]string) bool {
	s := labels.SelectorFromSet(selector)
	return s.Matches(labels.Set(before)) != s.Matches(labels.Set(after))
}

// Watch has every object judged again when it may come out differently: when another one changes, or a Module's selector, or the labels of a node.
func (e Exclusive[O]) Watch(mgr ctrl.Manager, b *builder.Builder) *builder.Builder {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return e.requests(ctx, mgr.GetClient())
	})
	moved := predicate.Funcs{UpdateFunc: func(u event.UpdateEvent) bool {
		moves, err := e.Moves(context.Background(), mgr.GetCache(), u.ObjectOld.GetLabels(), u.ObjectNew.GetLabels())
		return moves || err != nil
	}}
	empty, _ := reflect.New(reflect.TypeFor[O]().Elem()).Interface().(O)
	return b.
		Watches(empty, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1beta1.Module{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Node{}, all, builder.WithPredicates(predicate.LabelChangedPredicate{}, moved))
}

func (e Exclusive[O]) requests(ctx context.Context, reader client.Reader) (requests []reconcile.Request) {
	all, err := e.all(ctx, reader)
	if err != nil {
		return nil // a cache fails only when it is being stopped
	}
	for _, o := range all {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return requests
}

// all objects of the kind. Nothing may be changed in them.
func (e Exclusive[O]) all(ctx context.Context, reader client.Reader) ([]O, error) {
	list := e.List()
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list objects of kind %s: %w", kindOf[O](), err)
	}
	var all []O
	err := meta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(O)
		if !ok {
			return fmt.Errorf("a %T is in it", item)
		}
		all = append(all, o)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the list of kind %s: %w", kindOf[O](), err)
	}
	return all, nil
}

// kindOf is the name of the kind, for people.
func kindOf[O Object]() string { return reflect.TypeFor[O]().Elem().Name() }

// labelled returns the nodes with nothing but their metadata: that is all that a cache has to hold of them.
func labelled(ctx context.Context, reader client.Reader) ([]corev1.Node, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	// Nothing is changed in them, and there may be thousands.
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	nodes := make([]corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i].ObjectMeta = list.Items[i].ObjectMeta
	}
	return nodes, nil
}

// Claim is what one object claims: nodes, for itself.
type Claim struct {
	// Key names the object.
	Key types.NamespacedName
	// Selector chooses the nodes by their labels; all must match, and without any, every node is chosen.
	Selector map[string]string
	// Created is when the object was.
	Created time.Time
	// Module is the Module that the object has already, or nil. The nodes that it selects are held by the object, whatever Selector says by now.
	Module *v1beta1.Module
}

// Conflict says whom nodes are lost to.
type Conflict struct {
	// With names the object that the nodes are lost to; the first by name where there are several.
	With types.NamespacedName
	// Nodes are the names of the nodes that are lost, to whomever, in order.
	Nodes []string
}

// namedNodes is how many nodes a message names.
const namedNodes = 5

// String is the conflict as a message.
func (c *Conflict) String() string {
	names := c.Nodes
	if len(names) > namedNodes {
		names = append(slices.Clone(names[:namedNodes]), fmt.Sprintf("and %d more", len(c.Nodes)-namedNodes))
	}
	return fmt.Sprintf("%s has the same nodes (%s): choose others", c.With, strings.Join(names, ", "))
}

// Overlap returns nil if me may have all the nodes that it selects, or whom it loses which of them to. A node goes to the one whose Module is there
// already; if that is none of them or both, to the older one, and among those of one time to the first by name. So of all that may have their nodes, no
// two share one, and none selects a node that another's Module selects already.
//
// It is for Operator.Check. others may contain me.
func Overlap(me Claim, others []Claim, nodes []corev1.Node) *Conflict {
	mine := prepare(&me)
	var rivals []prepared
	for i := range others {
		if others[i].Key != me.Key {
			rivals = append(rivals, prepare(&others[i]))
		}
	}
	var conflict *Conflict
	for i := range nodes {
		node := labels.Set(nodes[i].Labels)
		if !mine.wants.Matches(node) {
			continue
		}
		lost := false
		for j := range rivals {
			if !rivals[j].beats(&mine, node) {
				continue
			}
			if conflict == nil {
				conflict = &Conflict{With: rivals[j].Key}
			}
			if compareKeys(rivals[j].Key, conflict.With) < 0 {
				conflict.With = rivals[j].Key
			}
			lost = true
		}
		if lost {
			conflict.Nodes = append(conflict.Nodes, nodes[i].Name)
		}
	}
	if conflict != nil {
		slices.Sort(conflict.Nodes)
	}
	return conflict
}

// prepared is a claim whose selectors are made once, and not for each of some thousand nodes.
type prepared struct {
	*Claim
	wants, holds labels.Selector
}

func prepare(c *Claim) prepared {
	p := prepared{Claim: c, wants: labels.SelectorFromSet(c.Selector), holds: labels.Nothing()}
	if c.Module != nil {
		p.holds = labels.SelectorFromSet(c.Module.Spec.Selector)
	}
	return p
}

// beats is true when p keeps another, which wants the node, from having it.
func (p *prepared) beats(other *prepared, node labels.Set) bool {
	holds := p.holds.Matches(node)
	switch {
	case holds != other.holds.Matches(node):
		return holds
	case !p.wants.Matches(node): // both hold it, and p is about to leave
		return false
	}
	return cmp.Or(p.Created.Compare(other.Created), compareKeys(p.Key, other.Key)) < 0
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
