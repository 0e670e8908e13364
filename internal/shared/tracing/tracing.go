// SPDX-License-Identifier: Apache-2.0

// Package tracing makes spans where a context says that somebody collects them. It is the API
// alone: package otlp sends spans, and only programs know it.
//
// A span says what was worked on, and how long it took. It has no text of an error or of an object,
// since both may quote parameters of kernel modules or credentials.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of what makes our spans.
const scope = "github.com/drover-project/drover"

// Attributes that several programs set. What OpenTelemetry has a name for has that name.
const (
	Namespace = attribute.Key("k8s.namespace.name")
	Object    = attribute.Key("drover.object.name")
	Outcome   = attribute.Key("drover.outcome")
	errorType = attribute.Key("error.type")
)

type key struct{}

// With returns a context in which spans are made by a provider.
func With(ctx context.Context, p trace.TracerProvider) context.Context {
	return context.WithValue(ctx, key{}, p.Tracer(scope))
}

// On reports whether spans are made. Callers ask before they put together what a span would say.
func On(ctx context.Context) bool {
	_, on := ctx.Value(key{}).(trace.Tracer)
	return on
}

// Start begins a span below the context's. Without [With] it is one that nobody sees, and the
// context stays the same.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	tracer, on := ctx.Value(key{}).(trace.Tracer)
	if !on {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return tracer.Start(ctx, name, trace.WithAttributes(attributes...))
}

// Fail notes that what a span stands for failed. The class is one of few words, such as an API
// server's reason, and not an error's text.
func Fail(span trace.Span, class string) {
	span.SetAttributes(errorType.String(class))
	span.SetStatus(codes.Error, class)
}
