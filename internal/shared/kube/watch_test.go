// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// TestReadsWaitForAWatchThatIsDown: what a client wrote while the watch of its cache was down is
// read as soon as the watch is back, and not before: nothing is done again by a cache that lacks
// it. A cache that was filled anew meanwhile is taken although no event tells of the write.
func TestReadsWaitForAWatchThatIsDown(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, tc := range []struct {
		name string
		// anew: the API server does not know any more what the watch has seen. deleted: by another
		// client, while the watch is down.
		anew, deleted bool
		list          bool
	}{
		{name: "back where it was"},
		{name: "back where it was, for a list", list: true},
		{name: "anew", anew: true},
		{name: "anew, for a list", anew: true, list: true},
		{name: "anew, and the object is gone", anew: true, deleted: true},
		{name: "anew, and the object is gone, for a list", anew: true, deleted: true, list: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := env.Get(t)
			admin, ns := e.Admin(t), e.Namespace(t)
			l := &line{anew: tc.anew}
			c := cached(t, e, l, limit)
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}}
			key := client.ObjectKeyFromObject(object)
			if err := c.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) { // the watch runs
				t.Fatal(err)
			}
			l.cut()
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			if tc.deleted {
				if err := admin.Delete(t.Context(), object.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}

			found := make(chan error, 1)
			go func() {
				if !tc.list {
					found <- c.Get(t.Context(), key, &corev1.ConfigMap{})
					return
				}
				var all corev1.ConfigMapList
				err := c.List(t.Context(), &all, client.InNamespace(ns), client.MatchingFields{"metadata.name": key.Name})
				if err == nil && len(all.Items) == 0 {
					err = apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
				}
				found <- err
			}()
			select {
			case err := <-found:
				t.Fatalf("read while the watch was down: %v", err)
			case <-time.After(10 * limit):
			}
			l.mend()
			select {
			case err := <-found:
				if apierrors.IsNotFound(err) != tc.deleted || err != nil && !tc.deleted {
					t.Errorf("read when the watch was back: %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("the read waits although the watch is back")
			}
		})
	}
}

// cached is a client whose cache watches over a line.
func cached(t *testing.T, e *env.Env, l *line, limit time.Duration) client.Client {
	t.Helper()
	config := e.AdminConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return l.over(next) })
	made, err := cache.New(config, cache.Options{Scheme: e.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	name := func(o client.Object) []string { return []string{o.GetName()} }
	if err := made.IndexField(t.Context(), &corev1.ConfigMap{}, "metadata.name", name); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := made.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.New(config, client.Options{Scheme: e.Scheme(), Log: logr.Discard(), Cache: &client.CacheOptions{
		Reader: made, EnableReadYourWritesConsistency: ptr.To(true),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return kube.Patient(c, made, limit)
}

// over is the line as a link of a chain.
func (l *line) over(next http.RoundTripper) http.RoundTripper {
	return carry(func(r *http.Request) (*http.Response, error) { return l.carry(r, next) })
}

type carry func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (c carry) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// line carries requests to the API server. While it is cut, it carries no lists and
// watches.
type line struct {
	anew bool

	mu      sync.Mutex
	down    bool
	cancels []context.CancelFunc
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, cancel := range l.cancels {
		cancel()
	}
	l.cancels = nil
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *line) carry(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	query := r.URL.Query()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.down && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps"):
		return nil, errors.New("the line is cut")
	case query.Get("watch") != "true":
		return next.RoundTrip(r)
	}
	if l.anew && query.Get("sendInitialEvents") == "" && query.Get("resourceVersion") != "" && l.cancels == nil {
		return gone(r), nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	l.cancels = append(l.cancels, cancel)
	return next.RoundTrip(r.WithContext(ctx))
}

// gone is the answer to a watch from a version that the API server does not know any more.
func gone(r *http.Request) *http.Response {
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`
	return &http.Response{
		StatusCode: http.StatusGone, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

// TestAllAreTheCachesOwn: a client with a cache lends the same objects again, own writes among
// them; one without lists.
func TestAllAreTheCachesOwn(t *testing.T) {
	e := env.Get(t)
	ns := e.Namespace(t)
	mine := func(all []*corev1.ConfigMap) map[string]*corev1.ConfigMap {
		found := map[string]*corev1.ConfigMap{}
		for _, o := range all {
			if o.Namespace == ns && o.Name != "kube-root-ca.crt" {
				found[o.Name] = o
			}
		}
		return found
	}
	for name, c := range map[string]client.Client{"cache": cached(t, e, &line{}, kube.Patience), "none": e.Admin(t)} {
		t.Run(name, func(t *testing.T) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			var before *corev1.ConfigMap
			for range 2 {
				all, err := kube.All[corev1.ConfigMap](t.Context(), c, &corev1.ConfigMapList{}, kube.OwnWrites)
				if err != nil {
					t.Fatal(err)
				}
				now := mine(all)[name]
				if now == nil {
					t.Fatal("the own write is not among them")
				}
				if same := now == before; before != nil && same != (name == "cache") {
					t.Errorf("the same object again: %v", same)
				}
				before = now
			}
			if err := c.Delete(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			all, err := kube.All[corev1.ConfigMap](t.Context(), c, &corev1.ConfigMapList{}, kube.OwnWrites)
			if err != nil || mine(all)[name] != nil {
				t.Errorf("after its deletion: %v, %v", mine(all)[name], err)
			}
		})
	}
}
