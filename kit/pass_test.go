// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/kit"
)

var _ reconcile.Reconciler = (*kit.Reconciler[*Gadget])(nil)

// TestAnObjectThatIsGoneIsNoError, and is not looked at again; who keeps something of it is told.
func TestAnObjectThatIsGoneIsNoError(t *testing.T) {
	r := newRig(t)
	var forgotten []client.ObjectKey
	r.op.Forget = func(key client.ObjectKey) { forgotten = append(forgotten, key) }
	if result := r.pass("never"); result != (reconcile.Result{}) {
		t.Errorf("result %+v", result)
	}
	if diff := cmp.Diff([]client.ObjectKey{{Namespace: r.namespace, Name: "never"}}, forgotten); diff != "" {
		t.Errorf("forgotten (-want +got):\n%s", diff)
	}
}

// TestAPassThatFindsAllRight ends: it gets each child by its name, lists nothing beyond the
// object's namespace, asks the API server nothing that the cache knows, and does not ask to come
// back.
func TestAPassThatFindsAllRight(t *testing.T) {
	r := newRig(t)
	r.create("g")
	r.settle("g")
	r.ready("g")
	r.settle("g")

	var got []client.ObjectKey
	cached := interceptor.NewClient(r.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			got = append(got, key)
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(options)
			if o.Namespace != r.namespace {
				t.Errorf("%T are listed in namespace %q", list, o.Namespace)
			}
			return c.List(ctx, list, options...)
		},
	})
	live := interceptor.NewClient(r.client, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			t.Errorf("the API server is asked for %T %s", o, key)
			return nil
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			t.Errorf("the API server is asked for %T", list)
			return nil
		},
	})
	r.reconciler = kit.NewReconciler(cached, live, r.events, r.op)
	mark := r.env.Mark(r)
	if result := r.pass("g"); result != (reconcile.Result{}) {
		t.Errorf("result %+v", result)
	}
	if writes := r.writes(mark); len(writes) > 0 {
		t.Errorf("writes %v", writes)
	}
	want := []client.ObjectKey{{Namespace: r.namespace, Name: "g"}, {Namespace: r.namespace, Name: "g-config"},
		{Namespace: r.namespace, Name: "g"}}
	if !slices.Equal(got, want) {
		t.Errorf("it got %v, want %v", got, want)
	}
}
