// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/kit"
)

// afterWrites calls f after each write that the API server has accepted, and returns what it
// returns.
func afterWrites(c client.WithWatch, f func() error) client.WithWatch {
	then := func(err error) error {
		if err != nil {
			return err
		}
		return f()
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			return then(c.Apply(ctx, o, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return then(c.Patch(ctx, o, p, options...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return then(c.Create(ctx, o, options...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return then(c.Delete(ctx, o, options...))
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration,
			options ...client.SubResourceApplyOption) error {
			return then(c.SubResource(sub).Apply(ctx, o, options...))
		},
	})
}

var errKilled = errors.New("killed")

// untilKilled runs f, which is killed by a panic with errKilled, or returns.
func untilKilled(f func()) (killed bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != any(errKilled) {
				panic(p)
			}
			killed = true
		}
	}()
	f()
	return false
}

// TestAKilledOperatorLeavesNothingHalfDone: the process dies after each of its writes in turn; the
// next one comes to the same end.
func TestAKilledOperatorLeavesNothingHalfDone(t *testing.T) {
	r := newRig(t)
	r.op.Finalizer = finalizer
	r.create("g", func(g *Gadget) { g.Spec.Account = true })
	kills := 0
	mark := r.env.Mark(t)
	live := func() {
		dying := afterWrites(r.client, func() error { panic(errKilled) })
		r.reconciler = kit.NewReconciler(dying, r.client, nil, r.op)
		r.settle("g")
	}
	for untilKilled(live) {
		if kills++; kills > 20 {
			t.Fatal("it never comes to an end")
		}
	}
	if kills != 5 { // the finalizer, three children, the status
		t.Errorf("killed %d times, want once for each write", kills)
	}
	want := []string{"patch gadgets", patchAccount, patchConfig, patchModule, patchStatus}
	if diff := cmp.Diff(want, r.writes(mark)); diff != "" {
		t.Errorf("all writes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(stored(r.gadget("g")), r.module("g").Spec.ModuleLoader); diff != "" {
		t.Errorf("Module (-want +got):\n%s", diff)
	}
	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	for untilKilled(live) {
		if kills++; kills > 40 {
			t.Fatal("it never goes")
		}
	}
	if r.gadget("g") != nil || r.module("g") != nil || r.config("g") != nil || get(r, "g", &corev1.ServiceAccount{}) != nil {
		t.Error("something is left")
	}
}

// lagging reads as the API server was at some time before.
type lagging struct {
	client.WithWatch
	frozen map[client.ObjectKey]client.Object
	lags   bool
}

// Get implements client.Reader: what was read first is read until the cache catches up.
func (l *lagging) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if !l.lags {
		return l.WithWatch.Get(ctx, key, into, options...)
	}
	at := client.ObjectKey{Namespace: key.Namespace, Name: key.Name + "/" + kindOf(into)}
	old, known := l.frozen[at]
	if !known {
		err := l.WithWatch.Get(ctx, key, into, options...)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			old, _ = into.DeepCopyObject().(client.Object)
		}
		l.frozen[at] = old
	}
	if old == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kindOf(into)}, key.Name)
	}
	switch into := into.(type) {
	case *Gadget:
		*into = *old.DeepCopyObject().(*Gadget) //nolint:errcheck // of that kind
	default:
		return l.WithWatch.Get(ctx, key, into, options...)
	}
	return nil
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *Gadget:
		return "gadgets"
	case *corev1.ConfigMap:
		return "configmaps"
	}
	return "others"
}

// TestOutdatedReadsDoNoHarm: with a cache that stands still, no child is made twice, no foreign one
// is taken, no event is sent twice, and no condition speaks of a conflict.
func TestOutdatedReadsDoNoHarm(t *testing.T) {
	r := newRig(t)
	r.create("g")
	cache := &lagging{WithWatch: r.client, frozen: map[client.ObjectKey]client.Object{}, lags: true}
	r.reconciler = kit.NewReconciler(cache, r.client, r.events, r.op)
	for range 10 {
		r.pass("g")
	}
	if diff := cmp.Diff([]string{"Normal Progressing Module g is ready on 0 of 0 nodes"}, r.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// The cache shows neither the new wish nor the status.
	r.change("g", func(g *Gadget) { g.Spec.Size = "6" })
	version := r.module("g").ResourceVersion
	for range 5 {
		if result := r.pass("g"); result.RequeueAfter == 0 {
			t.Error("what was outdated is not looked at again")
		}
	}
	if r.module("g").ResourceVersion != version || len(r.told()) > 0 {
		t.Error("something was written or told")
	}
	r.wantSays("g", "Errored", "False")
	cache.lags = false
	r.settle("g")
	if got := r.config("g").Data["size"]; got != "6" {
		t.Errorf("size %s", got)
	}
	r.wantSays("g", "Errored", "False")
}

// TestConflictsAreNoErrors: a write that comes too late is made again, and nobody hears of it.
func TestConflictsAreNoErrors(t *testing.T) {
	r := newRig(t)
	r.op.Finalizer = finalizer
	r.create("g")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "g", errors.New("too late"))
	for i := 0; ; i++ {
		// Each write in turn is answered by a conflict, before it does anything.
		writes, refused := 0, false
		refuse := func() error {
			if writes++; writes > i && !refused {
				refused = true
				return conflict
			}
			return nil
		}
		r.reconciler = kit.NewReconciler(beforeWrites(r.client, refuse), r.client, r.events, r.op)
		r.settle("g") // ends with the write that was refused, if there was one
		if !refused {
			break
		}
		r.settle("g")
		r.must(r.admin.Delete(t.Context(), r.gadget("g")))
		r.reconciler = nil
		for r.gadget("g") != nil {
			r.pass("g")
		}
		r.create("g")
	}
	for _, event := range r.told() {
		if event != "Normal Progressing Module g is ready on 0 of 0 nodes" && event != "Normal Deleting Waiting until Module g is gone" &&
			event != "Normal Deleting Waiting until ConfigMap g-config is gone" {
			t.Errorf("event %q", event)
		}
	}
	r.wantSays("g", "Errored", "False")
}

// beforeWrites asks f before each write.
func beforeWrites(c client.WithWatch, f func() error) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if err := f(); err != nil {
				return err
			}
			return c.Apply(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if err := f(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, options...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration,
			options ...client.SubResourceApplyOption) error {
			if err := f(); err != nil {
				return err
			}
			return c.SubResource(sub).Apply(ctx, o, options...)
		},
	})
}

var _ reconcile.Reconciler = (*kit.Reconciler[*Gadget])(nil)
