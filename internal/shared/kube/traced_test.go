// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/shared/tracing"
)

// TestAPassSaysHowItEnded, and never in an error's own words.
func TestAPassSaysHowItEnded(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "modules"}, "m", errors.New("key=secret"))
	for name, c := range map[string]struct {
		result         reconcile.Result
		err            error
		outcome, class string
	}{
		"done":      {outcome: "done"},
		"again":     {result: reconcile.Result{RequeueAfter: time.Second}, outcome: "again"},
		"refused":   {err: fmt.Errorf("write: %w", conflict), outcome: "error", class: "Conflict"},
		"cancelled": {err: fmt.Errorf("read: %w", context.Canceled), outcome: "error", class: "Canceled"},
		"late":      {err: context.DeadlineExceeded, outcome: "error", class: "DeadlineExceeded"},
		"other":     {err: errors.New("key=secret"), outcome: "error", class: "_OTHER"},
	} {
		t.Run(name, func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			r := Traced("cow", reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return c.result, c.err }))
			request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "m"}}
			result, err := r.Reconcile(tracing.With(t.Context(), sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))), request)
			if !errors.Is(err, c.err) || result != c.result {
				t.Errorf("it returned %v, %v", result, err)
			}
			if len(spans.Ended()) != 1 {
				t.Fatalf("%d spans", len(spans.Ended()))
			}
			span, said := spans.Ended()[0], map[string]string{}
			for _, a := range span.Attributes() {
				said[string(a.Key)] = a.Value.String()
			}
			if span.Name() != "reconcile cow" || said["drover.outcome"] != c.outcome || said["error.type"] != c.class ||
				span.Status().Description != c.class || said["drover.object.name"] != "m" || said["k8s.namespace.name"] != "ns" {
				t.Errorf("%s %v: %v", span.Name(), span.Status(), said)
			}
		})
	}
}

// TestAPassThatNobodyTraces is as it was.
func TestAPassThatNobodyTraces(t *testing.T) {
	plain := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	r, ctx := Traced("cow", plain), t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = r.Reconcile(ctx, reconcile.Request{}) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
