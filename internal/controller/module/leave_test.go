// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	kmmac "github.com/drover-project/drover/api/kmm/v1beta1/applyconfiguration/kmm/v1beta1"
	"github.com/drover-project/drover/internal/kube"
)

// restore applies the orders of a node as they are under another name, as a backup's restore does: it owns them too.
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

func TestAnEntryThatAnotherOwnsTooLeaves(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "beside another": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.node("a"), w.module("nic")
			w.load(node, m)
			w.must(w.admin.Delete(t.Context(), m))
			w.pass(m)
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

func TestAnEntryIsNotTakenOutOfAListThatChanged(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.neighbour(w.config(node))
	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	w.agent(node, gone(v1beta1.NodeModulesConfigStatus{}, m))
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
