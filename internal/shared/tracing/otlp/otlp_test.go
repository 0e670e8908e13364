// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/internal/shared/tracing"
	"github.com/drover-project/drover/internal/testkit/collector"
)

// TestOffIsNothing: without the flag there is no goroutine, and the context and the config stay
// what they are.
func TestOffIsNothing(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1") // our flag alone decides
	before := runtime.NumGoroutine()
	var o Options
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	o.AddFlags(set)
	if err := set.Parse(nil); err != nil {
		t.Fatal(err)
	}
	p, err := o.Start(t.Context(), "test")
	if p != nil || err != nil {
		t.Fatalf("it is %v, %v", p, err)
	}
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	if ctx := p.Context(t.Context()); ctx != t.Context() || p.Wrap(config) != config || config.WrapTransport != nil || tracing.On(ctx) {
		t.Error("context or config changed")
	}
	p.Stop()
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines became %d", before, after)
	}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		_, span := tracing.Start(ctx, "nothing")
		span.End()
	}); n != 0 {
		t.Errorf("a span that nobody collects allocates %v times", n)
	}
}

// TestRequestsAreChildren of the span in whose context they are made. The server is told.
func TestRequestsAreChildren(t *testing.T) {
	t.Setenv(collector.Soon, collector.SoonValue)
	c := collector.Start(t)
	told := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told <- r.Header.Get("traceparent") }))
	defer server.Close()
	p := start(t, Options{Endpoint: c.Endpoint, PerMillion: million})
	client, err := rest.HTTPClientFor(p.Wrap(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/apis/g/v1/namespaces/ns/things/one/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return <-told
	}
	ctx, span := tracing.Start(p.Context(t.Context()), "pass")
	parent := ask(ctx)
	tracing.Fail(span, "Conflict")
	span.End()
	if other := ask(p.Context(t.Context())); other != "" {
		t.Errorf("a request of nobody's span tells %q", other)
	}
	p.Stop()
	all := c.Spans()
	if len(all) != 2 {
		t.Fatalf("%d spans: %+v", len(all), all)
	}
	pass := collector.Named(all, "pass")[0]
	below := collector.Below(all, pass)
	if len(below) != 1 || below[0].Name != "GET things/status" || pass.Error != "Conflict" || pass.Resource["service.name"] != "test" {
		t.Errorf("it is %+v", all)
	}
	if want := fmt.Sprintf("00-%s-%s-01", pass.Trace, below[0].ID); parent != want {
		t.Errorf("the server is told %q, want %q", parent, want)
	}
}

// TestTheRateIsTheTraces': with a rate of 0 nothing is sent, and the server is told so.
func TestTheRateIsTheTraces(t *testing.T) {
	c := collector.Start(t)
	p := start(t, Options{Endpoint: c.Endpoint})
	_, span := tracing.Start(p.Context(t.Context()), "pass")
	if span.SpanContext().IsSampled() {
		t.Error("it is sampled")
	}
	span.End()
	p.Stop()
	if all := c.Spans(); len(all) != 0 {
		t.Errorf("it sent %+v", all)
	}
}

// TestACollectorThatIsAway costs nothing but its spans.
func TestACollectorThatIsAway(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, nobody reads from them
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for name, endpoint := range map[string]string{
		"nobody listens": nobody.Addr().String(), "never answers": silent.Addr().String(), "no such name": "collector.invalid:4317",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(collector.Soon, collector.SoonValue)
			began := time.Now()
			p := start(t, Options{Endpoint: endpoint, PerMillion: million})
			ctx := p.Context(t.Context())
			const spans = 20_000 // ten times what waits to be sent
			for range spans {
				_, span := tracing.Start(ctx, "pass")
				span.End()
			}
			if took := time.Since(began); took > sendTimeout {
				t.Errorf("%d spans took %s", spans, took)
			}
			began = time.Now()
			p.Stop()
			if took := time.Since(began); took > stopTimeout+time.Second {
				t.Errorf("the end took %s", took)
			}
		})
	}
}

func start(t *testing.T, o Options) *Provider {
	t.Helper()
	p, err := o.Start(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	if p == nil {
		t.Fatal("it is off")
	}
	t.Cleanup(p.Stop)
	return p
}

func TestFlagsThatCannotBe(t *testing.T) {
	for says, o := range map[string]Options{
		"too many colons":          {Endpoint: "http://collector:4317"},
		"missing port":             {Endpoint: "collector"},
		"is not HOST:PORT":         {Endpoint: ":4317"},
		"unknown port":             {Endpoint: "collector:otlp-nowhere"},
		"--tracing-sampling-rate-": {Endpoint: "collector:4317", PerMillion: million + 1},
		"-1 is not between":        {Endpoint: "collector:4317", PerMillion: -1},
	} {
		p, err := o.Start(t.Context(), "test")
		if p != nil || err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "--tracing-") {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
}

func TestResourceOf(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/nodes/n":                                                "nodes",
		"/api/v1/namespaces/kube-system":                                 "namespaces",
		"/api/v1/namespaces/ns/pods/p/eviction":                          "pods/eviction",
		"/apis/kmm.sigs.x-k8s.io/v1beta1/nodemodulesconfigs/n":           "nodemodulesconfigs",
		"/apis/kmm.sigs.x-k8s.io/v1beta1/namespaces/ns/modules/m/status": "modules/status",
		"/apis/kmm.sigs.x-k8s.io/v1beta1":                                "apis",
		"/version":                                                       "version",
		"/":                                                              "",
	} {
		if got := resourceOf(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
