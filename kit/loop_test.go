// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/kit"
)

// TestAMessageThatChangesIsNoReasonToTryAgain: an operator that says something else each time is
// asked again when it wanted to be, and not because its words were written. A status that somebody
// else has written is put right all the same.
func TestAMessageThatChangesIsNoReasonToTryAgain(t *testing.T) {
	r := newRig(t)
	var tries atomic.Int64
	r.op.Observe = func(context.Context, *Gadget, []client.Object) error {
		return &kit.Problem{Reason: "Unreachable", Message: fmt.Sprintf("port %d: connection reset", tries.Add(1)), RetryAfter: time.Hour}
	}
	r.start(&kit.Options{MetricsAddress: "0", ProbeAddress: "0", Namespaces: []string{r.namespace}})
	r.create("g")
	latest := func() bool {
		return r.says("g", "Ready") == fmt.Sprintf("False Unreachable: port %d: connection reset", tries.Load())
	}
	r.await("a try", latest)
	before := tries.Load()
	const times = 5
	for i := range times {
		last := tries.Load()
		r.must(r.admin.Patch(t.Context(), r.gadget("g"), merge(`{"metadata":{"annotations":{"time":"%d"}}}`, i)))
		r.await("another try", func() bool { return tries.Load() > last && latest() })
	}
	if got := tries.Load() - before; got > times+3 { // the children's events may still have been on their way
		t.Errorf("%d tries for %d reasons", got, times)
	}
	last := tries.Load()
	r.must(r.admin.Status().Patch(t.Context(), r.gadget("g"), merge(`{"status":{"size":"forged"}}`)))
	r.await("the status to be put right", func() bool { return tries.Load() > last && latest() && r.gadget("g").Status.Size == "" })
}

// merge is a patch of whatever version is there.
func merge(format string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

// TestWhatAnOperatorMissesIsSaid: an object that Check, Desired or Observe look for in vain is no
// outdated read, which is tried again without a word.
func TestWhatAnOperatorMissesIsSaid(t *testing.T) {
	missing := fmt.Errorf("read the licence: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "licence"))
	for name, given := range map[string]func(op *kit.Operator[*Gadget]){
		"Check": func(op *kit.Operator[*Gadget]) { op.Check = func(context.Context, *Gadget) error { return missing } },
		"Desired": func(op *kit.Operator[*Gadget]) {
			op.Desired = func(*Gadget) ([]client.Object, error) { return nil, missing }
		},
		"Observe": func(op *kit.Operator[*Gadget]) {
			op.Observe = func(context.Context, *Gadget, []client.Object) error { return missing }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			given(&r.op)
			r.create("g")
			var err error
			for range 4 {
				_, err = r.try("g")
			}
			if err == nil {
				t.Error("no error, so the delay does not grow")
			}
			r.wantSays("g", "Ready", "False ReconcileFailed", "read the licence", `secrets "licence" not found`)
		})
	}
}

// TestADefinitionThatGoesHoldsNothing: there is no child of a kind whose CustomResourceDefinition
// has been deleted, so an object that goes does not wait.
func TestADefinitionThatGoesHoldsNothing(t *testing.T) {
	r := newRig(t)
	r.op.Finalizer = finalizer
	r.op.Children = append(r.op.Children, &Widget{}) // nobody has installed its definition
	r.create("g", func(g *Gadget) { g.Finalizers = []string{finalizer} })
	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	_, _ = r.try("g")
	if g := r.gadget("g"); g != nil {
		t.Errorf("left: %+v", g)
	}
}

// TestADefinitionThatGoesIsSaid: the API server knew the kind when the program started, and knows
// it no more.
func TestADefinitionThatGoesIsSaid(t *testing.T) {
	gone := apierrors.NewGenericServerResponse(404, "patch", schema.GroupResource{Resource: "configmaps"}, "", "404 page not found", 0, true)
	r := newRig(t)
	r.client = interceptor.NewClient(r.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := list.(*corev1.ConfigMapList); ok {
				return gone
			}
			return c.List(ctx, list, options...)
		},
	})
	r.create("g")
	for range 5 {
		if result := r.pass("g"); result.RequeueAfter > 0 && result.RequeueAfter < time.Second {
			t.Errorf("tried again after %s", result.RequeueAfter)
		}
	}
	r.wantSays("g", "Ready", "False CRDMissing", "make install")

	r.op.Finalizer, r.reconciler = finalizer, nil
	r.change("g", func(g *Gadget) { g.Finalizers = []string{finalizer} })
	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	for range 4 {
		_, _ = r.try("g")
	}
	if g := r.gadget("g"); g != nil {
		t.Errorf("left: %+v", g)
	}
}

// TestANameThatIsStillInUse: the child of an object that had the name before goes by itself; nobody
// has to do anything.
func TestANameThatIsStillInUse(t *testing.T) {
	r := newRig(t)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "g-config",
		Finalizers: []string{"example.com/slow"}}}
	r.must(r.admin.Create(t.Context(), theirs))
	r.must(r.admin.Delete(t.Context(), theirs.DeepCopy()))
	r.create("g")
	r.settle("g")
	r.wantSays("g", "Ready", "False Terminating", "ConfigMap g-config is being deleted")
	r.wantSays("g", "Errored", "False NoError")
	if result := r.pass("g"); result.RequeueAfter == 0 {
		t.Error("nobody looks again, and no watch tells of what is another's")
	}
	before := theirs.DeepCopy()
	r.must(r.admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), before))
	after := before.DeepCopy()
	after.Finalizers = nil
	r.must(r.admin.Patch(t.Context(), after, client.MergeFrom(before)))
	r.settle("g")
	r.wantSays("g", "Ready", "False Progressing")
}
