// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	kmmac "github.com/drover-project/drover/api/kmm/v1beta1/applyconfiguration/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
)

// restore applies the orders of a node as they are under another name, as a backup's restore does:
// it owns them too.
func (w *world) restore(nmc *v1beta1.NodeModulesConfig) {
	w.Helper()
	spec, err := kube.Convert[kmmac.NodeModulesConfigSpecApplyConfiguration](nmc.Spec)
	w.must(err)
	w.must(w.admin.Apply(w.Context(), kmmac.NodeModulesConfig(nmc.Name).WithSpec(spec), client.FieldOwner("restore"), client.ForceOwnership))
}

// neighbour puts an order of somebody else before all others.
func (w *world) neighbour(nmc *v1beta1.NodeModulesConfig) v1beta1.NodeModuleSpec {
	w.Helper()
	other := v1beta1.NodeModuleSpec{ModuleItem: v1beta1.ModuleItem{Namespace: w.namespace, Name: "other"}}
	nmc.Spec.Modules = slices.Insert(nmc.Spec.Modules, 0, other)
	w.must(w.admin.Update(w.Context(), nmc))
	return nmc.Spec.Modules[0]
}

// answered is a node whose agent has answered a Module's order to unload, which is not the first
// order in the object, and the Module.
func (w *world) answered() (*corev1.Node, *v1beta1.Module) {
	w.Helper()
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.neighbour(w.config(node))
	w.must(w.admin.Delete(w.Context(), m))
	w.pass(m)
	w.agent(node, gone(v1beta1.NodeModulesConfigStatus{}, m))
	return node, m
}

// labels checks all that a node's NodeModulesConfig has.
func (w *world) labels(node *corev1.Node, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(w.config(node).Labels))); diff != "" {
		w.Errorf("labels (-want +got):\n%s", diff)
	}
}

// TestAModuleThatLeavesLeavesNothing in what it shared with others, however many come and go: not
// its owner's fields either.
func TestAModuleThatLeavesLeavesNothing(t *testing.T) {
	w := newWorld(t)
	node, stays := w.node("a"), w.module("stays")
	w.load(node, stays)
	size := func() int {
		config := w.config(node)
		for _, f := range config.ManagedFields {
			if f.Manager == string(kube.ModuleOwner(w.namespace, "goes")) {
				t.Errorf("owned by %s (%s): %s", f.Manager, f.Operation, f.FieldsV1.GetRawString())
			}
		}
		if !slices.ContainsFunc(config.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
			return f.Manager == string(kube.ModuleOwner(w.namespace, "stays"))
		}) {
			t.Error("the other Module owns nothing any more")
		}
		return len(config.ManagedFields)
	}
	before := size()
	m := w.module("goes")
	w.pass(m)
	entry := w.ordered(node, stays)
	w.agent(node, loaded(entry, w.ordered(node, m)))
	w.pass(m)
	w.reap()
	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	w.agent(node, gone(loaded(entry), m))
	w.pass(m)
	w.pass(m)
	if w.exists(m) || w.entry(node, m) != nil {
		t.Fatal("the Module is still there")
	}
	if after := size(); after != before {
		t.Errorf("%d owners, before it came %d", after, before)
	}
	w.quiet(stays)
}

func TestAnEntryThatAnotherOwnsTooLeaves(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "beside another": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.node("a"), w.module("nic")
			w.load(node, m)
			w.labels(node, v1beta1.ConfiguredLabel(m.Namespace, m.Name), v1beta1.InUseLabel(m.Namespace, m.Name))
			w.must(w.admin.Delete(t.Context(), m))
			w.pass(m)
			w.labels(node, v1beta1.InUseLabel(m.Namespace, m.Name))
			var want []v1beta1.NodeModuleSpec
			if !alone {
				want = append(want, w.neighbour(w.config(node)))
			}
			w.restore(w.config(node))
			w.agent(node, gone(v1beta1.NodeModulesConfigStatus{}, m))
			w.pass(m)
			if e := w.entry(node, m); e != nil {
				t.Errorf("entry %+v is left: it orders a load", e)
			}
			var got []v1beta1.NodeModuleSpec
			if nmc := w.config(node); nmc != nil {
				got = nmc.Spec.Modules
				w.labels(node)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("other entries (-want +got):\n%s", diff)
			}
			if w.exists(m) {
				t.Error("the finalizer is not released")
			}
			w.quiet(m)
		})
	}
}

func TestAnOrderToUnloadThatAnotherOwnsTooIsTakenBack(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.deselect(node, m)
	w.restore(w.config(node))
	w.relabel(node, w.namespace)
	w.pass(m)
	if e := w.ordered(node, m); e.State == v1beta1.NodeModuleAbsent {
		t.Errorf("the order to unload stands, and says %s", e.Reason)
	}
	w.quiet(m)
}

func TestAnEntryIsNotTakenOutOfAListThatChanged(t *testing.T) {
	w := newWorld(t)
	node, m := w.answered()
	w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*v1beta1.NodeModulesConfig); ok {
				// In this moment somebody takes out the entry before ours.
				nmc := w.config(node)
				nmc.Spec.Modules = nmc.Spec.Modules[1:]
				w.must(w.admin.Update(ctx, nmc))
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	}))
	if w.pass(m).RequeueAfter == 0 {
		t.Error("nothing would try again")
	}
	w.ordered(node, m)
	w.use(w.operator)
	w.pass(m)
	if w.exists(m) || w.config(node) != nil {
		t.Error("the second try takes it out")
	}
}

// TestAnOrderLeavesAnObjectThatTheCacheIsBehindOf: when several Modules leave at once, each changes
// the objects of all. That costs no write that is refused, and none of what has changed.
func TestAnOrderLeavesAnObjectThatTheCacheIsBehindOf(t *testing.T) {
	patched := map[string]int{"patch nodemodulesconfigs": 1, "delete nodemodulesconfigs": 1}
	for name, test := range map[string]struct {
		given  func(*world, *v1beta1.NodeModulesConfig, *v1beta1.Module)
		writes map[string]int
	}{
		"another order has left": {
			given: func(w *world, nmc *v1beta1.NodeModulesConfig, _ *v1beta1.Module) {
				nmc.Spec.Modules = nmc.Spec.Modules[1:]
				w.must(w.admin.Update(w.Context(), nmc))
			},
			writes: patched,
		},
		"the order is to load": {
			given: func(w *world, nmc *v1beta1.NodeModulesConfig, _ *v1beta1.Module) {
				nmc.Spec.Modules[1].State = v1beta1.NodeModulePresent
				w.must(w.admin.Update(w.Context(), nmc))
			},
		},
		"the agent takes its answer back": {
			given: func(w *world, nmc *v1beta1.NodeModulesConfig, _ *v1beta1.Module) {
				w.agent(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nmc.Name}}, loaded(&nmc.Spec.Modules[1]))
			},
		},
		"another object has its name": {
			given: func(w *world, nmc *v1beta1.NodeModulesConfig, m *v1beta1.Module) {
				nmc.Finalizers = nil
				w.must(w.admin.Update(w.Context(), nmc))
				w.must(w.admin.Delete(w.Context(), nmc))
				nmc.ResourceVersion, nmc.UID = "", ""
				w.must(w.admin.Create(w.Context(), nmc))
				w.agent(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nmc.Name}}, gone(v1beta1.NodeModulesConfigStatus{}, m))
			},
		},
		"it is gone": {
			given: func(w *world, nmc *v1beta1.NodeModulesConfig, _ *v1beta1.Module) {
				nmc.Finalizers = nil
				w.must(w.admin.Update(w.Context(), nmc))
				w.must(w.admin.Delete(w.Context(), nmc))
			},
			writes: map[string]int{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.answered()
			before := w.config(node)
			w.useBoth(w.showing(before), w.operator)
			test.given(w, w.config(node), m)
			mark := w.env.Mark(t)

			result := w.pass(m)

			got := map[string]int{}
			for write, n := range w.env.Writes(t, mark, node.Name) {
				got[write.Verb+" "+write.Resource] += n
			}
			if diff := cmp.Diff(test.writes, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if again := result.RequeueAfter > 0; again != (test.writes == nil) {
				t.Errorf("the next pass is due after %s", result.RequeueAfter)
			}
			if left := w.entry(node, m) != nil; left != (test.writes == nil) {
				t.Errorf("the order is left: %t", left)
			}
		})
	}
}

// showing is the operator's client, which lists a NodeModulesConfig as it was.
func (w *world) showing(before *v1beta1.NodeModulesConfig) client.WithWatch {
	return interceptor.NewClient(w.operator, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if configs, ok := list.(*v1beta1.NodeModulesConfigList); ok {
				configs.Items = slices.DeleteFunc(configs.Items, func(o v1beta1.NodeModulesConfig) bool { return o.Name == before.Name })
				configs.Items = append(configs.Items, *before.DeepCopy())
			}
			return err
		},
	})
}

func TestAnOrderToUnloadOutlivesADelete(t *testing.T) {
	w := newWorld(t)
	node, m, second := w.node("a"), w.module("nic"), w.module("fs")
	w.pass(m)
	w.pass(second)
	w.agent(node, loaded(w.ordered(node, m), w.ordered(node, second)))
	w.pass(m)
	w.pass(second)
	w.reap()
	kept := loaded(w.ordered(node, second))
	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	w.must(w.admin.Delete(t.Context(), w.config(node)))
	// A restart forgets nothing either.
	w.use(w.operator)
	w.pass(m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent || !w.exists(m) {
		t.Fatalf("state %s: the kernel module is still in the kernel", e.State)
	}
	w.quiet(m)
	w.quiet(second)

	w.agent(node, gone(kept, m))
	w.pass(m)
	if w.exists(m) || w.config(node) != nil {
		t.Error("once the agent has answered, both go")
	}
	w.pass(second)
	if e := w.ordered(node, second); e.State != "" {
		t.Errorf("state %s: the other Module's order comes back", e.State)
	}
	if finalizers := w.config(node).Finalizers; len(finalizers) != 0 {
		t.Errorf("finalizers %v: an order to load needs none", finalizers)
	}
}

func TestOrdersOfTwoModulesToUnloadEachHoldTheObject(t *testing.T) {
	w := newWorld(t)
	node, first, second := w.node("a"), w.module("nic"), w.module("fs")
	w.pass(first)
	w.pass(second)
	both := loaded(w.ordered(node, first), w.ordered(node, second))
	w.agent(node, both)
	w.must(w.admin.Delete(t.Context(), first))
	w.must(w.admin.Delete(t.Context(), second))
	w.pass(first)
	// The second order comes when the object is already going.
	w.must(w.admin.Delete(t.Context(), w.config(node)))
	w.pass(second)
	both.Modules = both.Modules[1:]
	w.agent(node, gone(both, first))
	w.pass(first)
	if w.exists(first) || w.entry(node, first) != nil {
		t.Error("the first is gone")
	}
	if e := w.ordered(node, second); e.State != v1beta1.NodeModuleAbsent {
		t.Errorf("state %s: the second has not been answered", e.State)
	}
	w.quiet(second)
	w.agent(node, gone(v1beta1.NodeModulesConfigStatus{}, second))
	w.pass(second)
	if w.exists(second) || w.config(node) != nil {
		t.Error("nothing is left")
	}
}

func TestAnOrderToUnloadThatIsTakenBackHoldsNothing(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.deselect(node, m)
	if len(w.config(node).Finalizers) != 1 {
		t.Errorf("finalizers %v, want one while the order stands", w.config(node).Finalizers)
	}
	w.relabel(node, w.namespace)
	w.pass(m)
	if len(w.config(node).Finalizers) != 0 {
		t.Errorf("finalizers %v are left", w.config(node).Finalizers)
	}
}

func TestAnOrderToUnloadHoldsNothingThatNobodyCanAnswer(t *testing.T) {
	cases := map[string]func(*world, *v1beta1.NodeModulesConfig){
		"the node is gone": func(w *world, nmc *v1beta1.NodeModulesConfig) {
			w.must(w.admin.Delete(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nmc.Name}}))
			w.must(w.admin.Delete(w.Context(), nmc))
		},
		"the CRDs are leaving": func(w *world, nmc *v1beta1.NodeModulesConfig) {
			w.must(w.admin.Delete(w.Context(), nmc))
			w.use(w.reading(func(o client.Object) error {
				if crd, ok := o.(*metav1.PartialObjectMetadata); ok {
					now := metav1.Now()
					crd.DeletionTimestamp = &now
				}
				return nil
			}))
		},
		"somebody took the order out": func(w *world, nmc *v1beta1.NodeModulesConfig) {
			nmc.Spec.Modules = nil
			w.must(w.admin.Update(w.Context(), nmc))
			w.agent(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nmc.Name}}, v1beta1.NodeModulesConfigStatus{})
			w.must(w.admin.Delete(w.Context(), nmc))
		},
	}
	for name, happens := range cases {
		for _, there := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, Module there %t", name, there), func(t *testing.T) {
				w := newWorld(t)
				node, m := w.node("a"), w.module("nic")
				w.load(node, m)
				w.must(w.admin.Delete(t.Context(), m))
				w.pass(m)
				if !there {
					w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), m))
					m.Finalizers = nil
					w.must(w.admin.Update(t.Context(), m))
				}
				happens(w, w.config(node))
				w.pass(m)
				if nmc := w.config(node); nmc != nil {
					t.Errorf("the object stays for ever: %v", nmc.Finalizers)
				}
				if w.exists(m) {
					t.Error("and so does the Module")
				}
			})
		}
	}
}
