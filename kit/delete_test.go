// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

const finalizer = "kit.example.com/children"

// TestAnObjectWaitsForItsChildren: with a finalizer, it goes when they are gone, one after the
// other, the last kind first.
func TestAnObjectWaitsForItsChildren(t *testing.T) {
	r := newRig(t)
	r.op.Finalizer = finalizer
	r.create("g")
	if diff := cmp.Diff([][]string{{"patch gadgets"}, {patchConfig}, {patchModule}, {patchStatus}}, r.settle("g")); diff != "" {
		t.Errorf("writes of each pass (-want +got):\n%s", diff)
	}
	m := r.module("g")
	m.Finalizers = []string{"example.com/slow"}
	r.must(r.admin.Update(t.Context(), m))

	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	if diff := cmp.Diff([][]string{{"delete modules", patchStatus}}, r.settle("g")); diff != "" {
		t.Errorf("writes of each pass when it goes (-want +got):\n%s", diff)
	}
	r.wantSays("g", "Ready", "False Deleting", "Module g is gone")
	r.wantSays("g", "Errored", "False")
	if r.config("g") == nil {
		t.Error("the ConfigMap went before the Module")
	}
	m = r.module("g")
	m.Finalizers = nil
	r.must(r.admin.Update(t.Context(), m))
	r.pass("g")
	r.pass("g")
	if r.gadget("g") != nil || r.config("g") != nil || r.module("g") != nil {
		t.Errorf("left: %v, %v, %v", r.gadget("g"), r.config("g"), r.module("g"))
	}
}

// TestAnObjectWithoutChildrenGoesAtOnce.
func TestAnObjectWithoutChildrenGoesAtOnce(t *testing.T) {
	r := newRig(t)
	r.op.Finalizer = finalizer
	r.create("g", func(g *Gadget) { g.Finalizers = []string{finalizer} })
	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	r.pass("g")
	if g := r.gadget("g"); g != nil {
		t.Errorf("left: %+v", g)
	}
}

// TestAnErrorKeepsTheFinalizer: what cannot be listed may still be there.
func TestAnErrorKeepsTheFinalizer(t *testing.T) {
	r := newRig(t)
	r.op.Finalizer = finalizer
	broken := interceptor.NewClient(r.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := list.(*v1beta1.ModuleList); ok {
				return errors.New("the API server is away")
			}
			return c.List(ctx, list, options...)
		},
	})
	r.reconciler = kit.NewReconciler(r.client, broken, r.events, r.op)
	r.create("g")
	r.settle("g")
	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	for range 2 {
		if _, err := r.try("g"); err == nil {
			t.Error("no error, so nobody tries again")
		}
	}
	if g := r.gadget("g"); g == nil || !slices.Contains(g.Finalizers, finalizer) {
		t.Errorf("got %+v, want the finalizer", g)
	}
	r.wantSays("g", "Ready", "False ReconcileFailed", "the API server is away")
}

// TestWithoutAFinalizerNothingIsDone: the garbage collector is the one who removes the children,
// and none is made again.
func TestWithoutAFinalizerNothingIsDone(t *testing.T) {
	r := newRig(t)
	forgotten := []string{}
	r.op.Forget = func(key types.NamespacedName) { forgotten = append(forgotten, key.Name) }
	r.create("g", func(g *Gadget) { g.Finalizers = []string{"example.com/somebody"} })
	r.settle("g")
	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	r.must(r.admin.Delete(t.Context(), r.config("g")))
	if diff := cmp.Diff([][]string(nil), r.settle("g")); diff != "" {
		t.Errorf("writes of each pass (-want +got):\n%s", diff)
	}
	g := r.gadget("g")
	g.Finalizers = nil
	r.must(r.admin.Update(t.Context(), g))
	r.pass("g")
	if diff := cmp.Diff([]string{"g"}, forgotten); diff != "" {
		t.Errorf("forgotten (-want +got):\n%s", diff)
	}
}
