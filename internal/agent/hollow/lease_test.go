// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// The nodes beat one after another, so that an API server which is away for a moment is missed by a
// few of them only. The cluster misses the renewals of others as well: its own watch of the leases
// comes back late.
func TestAnOutageThatOneNodeSawIsEveryNodes(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	shared := &api{}
	saw, missedIt := &node{name: "saw", api: shared, clock: clock}, &node{name: "missed", api: shared, clock: clock}
	if missedIt.recovering() {
		t.Error("recovering before anything happened")
	}
	saw.note(t.Context(), errors.New("connection refused"))
	saw.note(t.Context(), nil)
	if !missedIt.recovering() {
		t.Error("a node that saw nothing of the outage does not look whether the cluster calls it unknown")
	}
	clock.Step(aftermath)
	if missedIt.recovering() {
		t.Errorf("still recovering %v after the outage", aftermath)
	}
}

// Each kubelet beats for itself. If nodes waited for one another, a busy API server would make them
// all late, and the cluster would call them unknown.
func TestANodesBeatWaitsForNoOther(t *testing.T) {
	second := make(chan struct{})
	hear := sync.OnceFunc(func() { close(second) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not hear that the client has given up
		if path.Base(r.URL.Path) == "second" {
			hear()
		}
		select {
		case <-second:
		case <-r.Context().Done():
			t.Error("the second node's beat waits until the first one's was given up")
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}`))
	}))
	defer server.Close()
	a, err := newAPI(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Now())
	f := &fleet{o: Options{Clock: clock}, api: a}
	for _, name := range []string{"first", "second"} {
		f.nodes = append(f.nodes, &node{name: name, api: a, clock: clock, beat: clock.Now()})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var beating sync.WaitGroup
	beating.Go(func() { f.beat(ctx) })
	defer beating.Wait()
	defer cancel()
	turn := time.NewTicker(10 * time.Millisecond)
	defer turn.Stop()
	for {
		select {
		case <-second:
			return
		case <-turn.C:
			clock.Step(leasePeriod / slots)
		}
	}
}

// A node of a large fleet may beat less often. Its lease lasts for longer then, and a gap between
// two beats is none.
func TestALongerLeasePeriod(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	for period, want := range map[time.Duration]struct {
		lease            int32
		missed, doubtful time.Duration
	}{
		0:                {lease: 40, missed: 25 * time.Second, doubtful: 30 * time.Second},
		50 * time.Second: {lease: 200, missed: 125 * time.Second, doubtful: 150 * time.Second},
	} {
		n := &node{name: "n", clock: clock, period: period}
		if got := *n.lease(metav1.NewMicroTime(clock.Now())).Spec.LeaseDurationSeconds; got != want.lease {
			t.Errorf("%s: the lease lasts %d s, want %d", period, got, want.lease)
		}
		if n.missed() != want.missed || n.doubtful() != want.doubtful {
			t.Errorf("%s: missed %s, doubtful %s", period, n.missed(), n.doubtful())
		}
	}
	o := Options{Nodes: 1, Kernels: []string{"6.1"}, LeasePeriod: 1500 * time.Millisecond}
	if _, err := o.validate(); err == nil {
		t.Error("a period of one and a half seconds is taken")
	}
}

// A node that comes back beats at once, and its loop does at the same moment: neither finds a
// lease, and one of them makes it first.
func TestTwoBeatsMakeOneLease(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]string{"PATCH": "NotFound", "POST": "AlreadyExists"}[r.Method]
		if slices.Contains(asked, http.MethodPost) {
			answer = ""
		}
		asked = append(asked, r.Method)
		w.Header().Set("Content-Type", "application/json")
		switch answer {
		case "NotFound":
			w.WriteHeader(http.StatusNotFound)
		case "AlreadyExists":
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + answer + `"}`))
	}))
	defer server.Close()
	a, err := newAPI(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{name: "n", api: a, clock: clocktesting.NewFakeClock(time.Now())}
	if err := n.renew(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{http.MethodPatch, http.MethodPost, http.MethodPatch}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}
