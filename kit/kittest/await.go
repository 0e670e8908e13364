// SPDX-License-Identifier: Apache-2.0

package kittest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

var errNotThere = errors.New("it is not there")

// Await watches the object of o's kind, namespace and name until objection has nothing to say
// against it, and leaves that state in o. The test ends with the last objection and the object when
// that takes too long.
func Await[O client.Object](t testing.TB, c *Cluster, o O, what string, objection func(O) error) {
	t.Helper()
	last := errNotThere
	err := c.follow(t.Context(), o, func(e watch.Event) (bool, error) {
		now, ok := e.Object.(O)
		switch {
		case e.Type == watch.Error:
			return false, fmt.Errorf("the watch says: %v", e.Object)
		case e.Type == watch.Deleted || !ok:
			last = errNotThere
			return false, nil
		}
		reflect.ValueOf(o).Elem().Set(reflect.ValueOf(now.DeepCopyObject()).Elem())
		last = objection(now)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("it was to be that %s; %v; after %s: %v\n%s\n%s", what, err, c.o.Patience, last, c.show(o), c.logs())
	}
}

// AwaitCondition waits until the object has a condition with that status and reason, about its
// present generation. An empty reason is any.
func AwaitCondition[O client.Object](t testing.TB, c *Cluster, o O, conditionType string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	Await(t, c, o, fmt.Sprintf("%s is %s %s", conditionType, status, reason), func(now O) error {
		conditions, err := Conditions(now)
		if err != nil {
			return err
		}
		found := meta.FindStatusCondition(conditions, conditionType)
		switch {
		case found == nil:
			return fmt.Errorf("it has no condition %s", conditionType)
		case found.Status != status || found.Reason != cmp.Or(reason, found.Reason) || found.ObservedGeneration < now.GetGeneration():
			return fmt.Errorf("%s=%s %s of generation %d: %s", found.Type, found.Status, found.Reason, found.ObservedGeneration, found.Message)
		}
		return nil
	})
}

// AwaitReady waits until the condition Ready is True.
func AwaitReady[O client.Object](t testing.TB, c *Cluster, o O) {
	t.Helper()
	AwaitCondition(t, c, o, "Ready", metav1.ConditionTrue, "")
}

// AwaitGone waits until there is no object of that kind, namespace and name.
func AwaitGone(t testing.TB, c *Cluster, o client.Object) {
	t.Helper()
	err := c.follow(t.Context(), o, func(e watch.Event) (bool, error) { return e.Type == watch.Deleted, nil })
	if err != nil {
		t.Fatalf("%T %s was to be gone; %v; after %s it is there\n%s\n%s", o, client.ObjectKeyFromObject(o), err, c.o.Patience, c.show(o),
			c.logs())
	}
}

// AwaitLoaded waits until the node says that the Module is ready there, and returns what its kernel
// says.
func (n *Node) AwaitLoaded(t testing.TB, module client.ObjectKey) Kernel {
	t.Helper()
	label := v1beta1.ReadyLabel(module.Namespace, module.Name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	Await(t, n.c, node, fmt.Sprintf("%s has the label %s", n.Name, label), func(now *corev1.Node) error {
		if _, has := now.Labels[label]; !has {
			return fmt.Errorf("its labels are %v", now.Labels)
		}
		return nil
	})
	return n.Kernel(t)
}

// AwaitUnloaded waits until the node's agent no longer reports the Module to be in the kernel, and
// returns what its kernel says.
func (n *Node) AwaitUnloaded(t testing.TB, module client.ObjectKey) Kernel {
	t.Helper()
	report := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	err := n.c.follow(t.Context(), report, func(e watch.Event) (bool, error) {
		now, ok := e.Object.(*v1beta1.NodeModulesConfig)
		return e.Type == watch.Deleted || ok && !slices.ContainsFunc(now.Status.Modules, func(m v1beta1.NodeModuleStatus) bool {
			return m.Namespace == module.Namespace && m.Name == module.Name
		}), nil
	})
	if err != nil {
		t.Fatalf("Module %s was to be unloaded on %s; %v\n%s", module, n.Name, err, n.c.logs())
	}
	return n.Kernel(t)
}

// AwaitLoads waits until the kernel has granted the agent so many loads, all boots together; it
// looks whenever the node reports. That is how to see a module come back that somebody removed:
// labels may not even have moved.
func (n *Node) AwaitLoads(t testing.TB, loads int) Kernel {
	t.Helper()
	report := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	var k Kernel
	Await(t, n.c, report, fmt.Sprintf("%s has loaded %d times", n.Name, loads), func(*v1beta1.NodeModulesConfig) error {
		if k = n.Kernel(t); k.Loads < loads {
			return fmt.Errorf("its kernel is %+v", k)
		}
		return nil
	})
	return k
}

// Conditions reads status.conditions of an object of any kind.
func Conditions(o client.Object) ([]metav1.Condition, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("read the conditions of %T: %w", o, err)
	}
	var read struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &read); err != nil {
		return nil, fmt.Errorf("read the conditions of %T: %w", o, err)
	}
	return read.Status.Conditions, nil
}

// follow shows one object's states, the present one first, until seen has seen enough. An object
// that is not there is shown as Deleted.
func (c *Cluster) follow(ctx context.Context, o client.Object, seen watchtools.ConditionFunc) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.Patience) // cleanups wait, too
	defer cancel()
	list, err := c.listOf(o)
	if err != nil {
		return err
	}
	only := []client.ListOption{client.InNamespace(o.GetNamespace()), client.MatchingFields{"metadata.name": o.GetName()}}
	from := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			all := list.DeepCopyObject().(client.ObjectList) //nolint:errcheck // it is a copy of one
			return all, c.Client.List(ctx, all, append(only, &client.ListOptions{Raw: &options})...)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Client.Watch(ctx, list, append(only, &client.ListOptions{Raw: &options})...)
		},
	}
	_, err = watchtools.UntilWithSync(ctx, cache.ToListWatcherWithWatchListSemantics(from, c.Client), o,
		func(store cache.Store) (bool, error) {
			if len(store.ListKeys()) > 0 {
				return false, nil
			}
			return seen(watch.Event{Type: watch.Deleted, Object: o})
		}, seen)
	if err != nil {
		return fmt.Errorf("watch %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// listOf is an empty list of the object's kind.
func (c *Cluster) listOf(o client.Object) (client.ObjectList, error) {
	kind, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T (is it in Options.AddToScheme?): %w", o, err)
	}
	kind.Kind += "List"
	if _, ok := o.(*unstructured.Unstructured); ok {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	}
	made, err := c.scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("make a list of %T: %w", o, err)
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is no list", made)
	}
	return list, nil
}

// show is the object as YAML, for who reads about a failure.
func (c *Cluster) show(o client.Object) string {
	o.SetManagedFields(nil)
	content, err := yaml.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(content)
}
