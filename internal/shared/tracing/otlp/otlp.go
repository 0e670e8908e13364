// SPDX-License-Identifier: Apache-2.0

// Package otlp sends spans to a collector of OpenTelemetry, by gRPC, if a flag says where it is.
package otlp

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/shared/tracing"
	"github.com/drover-project/drover/internal/shared/version"
)

const (
	million = 1_000_000
	// sendTimeout is how long a collector may take for a batch. Spans that find no room meanwhile are
	// dropped.
	sendTimeout = 5 * time.Second
	// stopTimeout is how long the end of a process may wait for a collector.
	stopTimeout = 2 * time.Second
	// complainEvery is how often the log says that a collector is away.
	complainEvery = 5 * time.Minute
)

// Options are the flags, named as those of Kubernetes' own programs.
type Options struct {
	// Endpoint is a collector's HOST:PORT; empty: there are no spans.
	Endpoint string
	// PerMillion is how many of a million traces are sent.
	PerMillion int
}

// AddFlags adds the flags to a program's.
func (o *Options) AddFlags(set *flag.FlagSet) {
	set.StringVar(&o.Endpoint, "tracing-endpoint", "", "HOST:PORT of an OpenTelemetry collector that takes OTLP by gRPC without TLS; "+
		"without it, nothing is traced")
	set.IntVar(&o.PerMillion, "tracing-sampling-rate-per-million", million, "how many of a million traces are sent to --tracing-endpoint")
}

// Provider makes spans and sends them. Nil makes none.
type Provider struct{ sdk *sdktrace.TracerProvider }

// Start begins to send the spans of a program, or returns nil if no endpoint is set. It does not
// wait for the collector, and nothing else does: what cannot be sent is dropped. The attributes
// tell this process from others of the program.
func (o Options) Start(ctx context.Context, program string, attributes ...attribute.KeyValue) (*Provider, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	logger, now := klog.FromContext(ctx), rate.Sometimes{First: 1, Interval: complainEvery}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now.Do(func() { logger.Error(err, "Spans are lost", "collector", o.Endpoint) })
	}))
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(o.Endpoint), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithTimeout(sendTimeout))
	if err != nil {
		return nil, fmt.Errorf("--tracing-endpoint: %w", err)
	}
	about := append(attributes, attribute.String("service.name", program), attribute.String("service.version", version.Version))
	return &Provider{sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(o.PerMillion)/million))),
		sdktrace.WithBatcher(exporter, sdktrace.WithExportTimeout(sendTimeout)),
		sdktrace.WithResource(resource.NewSchemaless(about...)),
	)}, nil
}

func (o Options) check() error {
	host, port, err := net.SplitHostPort(o.Endpoint)
	if err == nil && (host == "" || strings.Contains(host, "/")) {
		err = errors.New("is not HOST:PORT")
	}
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("--tracing-endpoint: %q: %w", o.Endpoint, err)
	}
	if o.PerMillion < 0 || o.PerMillion > million {
		return fmt.Errorf("--tracing-sampling-rate-per-million: %d is not between 0 and %d", o.PerMillion, million)
	}
	return nil
}

// Context returns a context in which spans are made.
func (p *Provider) Context(ctx context.Context) context.Context {
	if p == nil {
		return ctx
	}
	return tracing.With(ctx, p.sdk)
}

// BaseContext is the context for a manager's controllers, which do not see the one that it is
// started with.
func (p *Provider) BaseContext() context.Context { return p.Context(context.Background()) }

// Stop sends what is left, if the collector takes it at once.
func (p *Provider) Stop() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := p.sdk.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// Wrap returns a config whose requests are spans below those of their contexts. The API server is
// told the trace, so that it can add to it. Requests of nobody's span, as a cache's watches, are no
// spans.
func (p *Provider) Wrap(config *rest.Config) *rest.Config {
	if p == nil {
		return config
	}
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(next,
			otelhttp.WithTracerProvider(p.sdk), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
			otelhttp.WithPropagators(propagation.TraceContext{}),
			otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanContextFromContext(r.Context()).IsValid() }),
			otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + resourceOf(r.URL.Path) }),
		)
	})
	return c
}

// resourceOf is the resource in a path of the Kubernetes API, with the subresource: what is the
// same for all objects of a kind. Of another path it is the first part.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return parts[0]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}
