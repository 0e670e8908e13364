// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/shared/tracing"
)

// Traced makes a span of each pass of a controller, in a process that traces.
func Traced(name string, r reconcile.Reconciler) reconcile.Reconciler {
	return traced{Reconciler: r, name: name}
}

type traced struct {
	reconcile.Reconciler
	name string
}

// Reconcile implements [reconcile.Reconciler].
func (t traced) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	if !tracing.On(ctx) {
		return t.Reconciler.Reconcile(ctx, r) //nolint:wrapcheck // a link of a chain passes on what it gets
	}
	about := []attribute.KeyValue{
		attribute.String("drover.controller", t.name), tracing.Object.String(r.Name),
		// The log's lines about the pass have it, too.
		attribute.String("drover.reconcile.id", string(controller.ReconcileIDFromContext(ctx))),
	}
	if r.Namespace != "" {
		about = append(about, tracing.Namespace.String(r.Namespace))
	}
	ctx, span := tracing.Start(ctx, "reconcile "+t.name, about...)
	defer span.End()
	result, err := t.Reconciler.Reconcile(ctx, r)
	switch {
	case err != nil:
		span.SetAttributes(tracing.Outcome.String("error"))
		tracing.Fail(span, class(err))
	case result.RequeueAfter > 0:
		span.SetAttributes(tracing.Outcome.String("again"), attribute.Float64("drover.requeue.seconds", result.RequeueAfter.Seconds()))
	default:
		span.SetAttributes(tracing.Outcome.String("done"))
	}
	return result, err //nolint:wrapcheck // a link of a chain passes on what it gets
}

// class is the kind of an error, in a word.
func class(err error) string {
	reason := apierrors.ReasonForError(err)
	switch {
	case reason != metav1.StatusReasonUnknown:
		return string(reason)
	case errors.Is(err, context.Canceled):
		return "Canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "DeadlineExceeded"
	}
	return "_OTHER" // OpenTelemetry's word for the rest
}
