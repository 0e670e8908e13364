// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/operator/controller/preflight"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/testkit/env"
)

// late is a client whose first apply comes after something else.
type late struct {
	client.Client
	before func()
}

// Apply implements client.Writer.
func (l *late) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if before := l.before; before != nil {
		l.before = nil
		before()
	}
	return l.Client.Apply(ctx, object, options...)
}

// TestPreflightsGoTogether: of two that share an image and go at the same moment, each sees that
// the other one still wants it; it goes all the same.
func TestPreflightsGoTogether(t *testing.T) {
	w := newWorld(t)
	w.module("m", nil)
	first, second := w.ask("first", false), w.ask("second", false)
	w.pass()
	if n := len(w.made()); n != 1 {
		t.Fatalf("%d images instead of one that is shared", n)
	}
	w.must(w.admin.Delete(t.Context(), first))
	w.must(w.admin.Delete(t.Context(), second))
	of := func(p client.Object) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)}
	}
	operator := w.env.Client(t, w.env.Config(t, env.Operator))
	together := &late{Client: operator, before: func() {
		_, err := w.control.Reconcile(t.Context(), of(second))
		w.must(err)
	}}
	o := preflight.Options{Examines: true, Makes: true, Gate: &gate.Gate{}}
	_, err := preflight.New(together, operator, o).Reconcile(t.Context(), of(first))
	if err != nil && !apierrors.IsConflict(err) {
		t.Error(err)
	}
	if together.before != nil {
		t.Error("the first one did not see that the second one wants the image")
	}
	w.pass() // an error is tried again
	if left := w.made(); len(left) != 0 {
		t.Errorf("what nobody wants is left: %+v", left[0].Spec)
	}
}
