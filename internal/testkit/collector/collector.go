// SPDX-License-Identifier: Apache-2.0

// Package collector is a collector of OpenTelemetry for tests: it takes spans by OTLP over gRPC, on
// loopback, and keeps them.
package collector

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

const (
	// Soon is a variable of the environment with which a process sends spans at once.
	Soon = "OTEL_BSP_SCHEDULE_DELAY"
	// SoonValue is its value, in milliseconds.
	SoonValue = "50"
)

// patience is how long a test waits for spans.
const patience = time.Minute

// Span is one that arrived.
type Span struct {
	Name, Trace, ID, Parent string
	// Attributes and Resource are what is said of the span and of the process, as text.
	Attributes, Resource map[string]string
	// Events are the names of what happened, each followed by its reason.
	Events []string
	// Error is the status's message if the span failed.
	Error string
	// Start and End are in nanoseconds.
	Start, End uint64
}

// Collector keeps what it is sent.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer
	// Endpoint is its HOST:PORT.
	Endpoint string

	mu    sync.Mutex
	spans []Span
	raw   []string
	came  chan struct{}
}

// Start runs a collector until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Endpoint: listener.Addr().String(), came: make(chan struct{}, 1)}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("the collector: %v", err)
		}
	})
	return c
}

// Export implements the service of OTLP.
func (c *Collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, r.String())
	for _, process := range r.ResourceSpans {
		about := texts(process.Resource.GetAttributes())
		for _, scope := range process.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, spanOf(s, about))
			}
		}
	}
	select {
	case c.came <- struct{}{}:
	default:
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func spanOf(s *tracev1.Span, about map[string]string) Span {
	span := Span{
		Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Attributes: texts(s.Attributes), Resource: about, Start: s.StartTimeUnixNano, End: s.EndTimeUnixNano,
	}
	for _, e := range s.Events {
		span.Events = append(span.Events, e.Name+" "+texts(e.Attributes)["drover.reason"])
	}
	if s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR {
		span.Error = s.Status.GetMessage()
	}
	return span
}

func texts(attributes []*commonv1.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		out[a.Key] = a.Value.GetStringValue()
		if out[a.Key] == "" {
			out[a.Key] = a.Value.String()
		}
	}
	return out
}

// Spans are all that have come so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Raw is all that was sent, as text.
func (c *Collector) Raw() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.raw...)
}

// Await waits until what came satisfies holds, which says what is missing. Only one test at a time
// may wait.
func (c *Collector) Await(t testing.TB, holds func(spans []Span) error) {
	t.Helper()
	late := time.After(patience)
	for {
		spans := c.Spans()
		err := holds(spans)
		if err == nil {
			return
		}
		select {
		case <-c.came:
		case <-late:
			for _, s := range spans {
				t.Logf("%+v", s)
			}
			t.Fatalf("within %s: %v", patience, err)
		}
	}
}

// Named are the spans of a name.
func Named(spans []Span, name string) []Span {
	var out []Span
	for _, s := range spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// Below are the spans whose parent is a span.
func Below(spans []Span, parent Span) []Span {
	var out []Span
	for _, s := range spans {
		if s.Parent == parent.ID && s.Trace == parent.Trace {
			out = append(out, s)
		}
	}
	return out
}
