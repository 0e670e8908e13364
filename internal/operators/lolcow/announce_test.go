// SPDX-License-Identifier: Apache-2.0

package lolcow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/internal/operators/lolcow"
	"github.com/drover-project/drover/kit"
)

// herald is an HTTP server that honours Idempotency-Key: it takes two requests with one key for
// one.
type herald struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	keys     map[string]bool
	heard    []string
	status   int
}

func newHerald(t *testing.T) *herald {
	h := &herald{keys: map[string]bool{}, status: http.StatusNoContent}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.requests++
		var body struct{ Namespace, Name, Greeting string }
		key := r.Header.Get("Idempotency-Key")
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Method != http.MethodPost || key == "" || body.Name != "cow" {
			t.Errorf("%s with key %q: %+v: %v", r.Method, key, body, err)
		}
		if h.status < 300 && !h.keys[key] {
			h.keys[key] = true
			h.heard = append(h.heard, body.Greeting)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(h.status)
		fmt.Fprint(w, "a secret of the other side")
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *herald) set(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *herald) seen() (requests int, heard []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests, append([]string(nil), h.heard...)
}

var errKilled = errors.New("the process was killed")

// mortal is an operator's process that dies at its n-th access to something outside: right before
// it, or right after it took effect.
type mortal struct {
	*scene
	left  int
	after bool
	// lag: the cache never shows a child. fail, if set, is asked before each write.
	lag  bool
	fail func() error
	// writes that were made, and the most in one pass.
	writes, most int
	// reads of the workspace from the API server, and from the cache.
	direct, cached int
}

// step does an access, or dies.
func (m *mortal) step(do func() error) error {
	if m.left <= 0 {
		return errKilled
	}
	m.left--
	if m.left == 0 && !m.after {
		return errKilled
	}
	err := do()
	if m.left == 0 {
		return errKilled
	}
	return err
}

func (m *mortal) write(do func() error) error {
	return m.step(func() error {
		if m.fail != nil {
			if err := m.fail(); err != nil {
				return err
			}
		}
		m.writes++
		return do()
	})
}

// reconciler is a new process. Its cache is the API server itself: it never lags, and is told from
// direct reads by the counters.
func (m *mortal) reconciler() *kit.Reconciler[*api.Lolcow] {
	m.Helper()
	config := m.config()
	scheme := newScheme(m)
	plain, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	m.must(err)
	count := func(n *int) func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			_, lolcow := o.(*api.Lolcow)
			if _, workspace := o.(*api.LolcowWorkspace); workspace {
				*n++
			} else if m.lag && n == &m.cached && !lolcow {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		}
	}
	cached := interceptor.NewClient(plain, interceptor.Funcs{
		Get: count(&m.cached),
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return m.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return m.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return m.write(func() error { return c.Delete(ctx, o, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return m.write(func() error { return c.Apply(ctx, o, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration,
			opts ...client.SubResourceApplyOption) error {
			return m.write(func() error { return c.SubResource(sub).Apply(ctx, o, opts...) })
		},
	})
	live := interceptor.NewClient(plain, interceptor.Funcs{Get: count(&m.direct)})
	op := lolcow.OperatorOver(cached, live, roundTripper(func(r *http.Request) (response *http.Response, err error) {
		err = m.step(func() error { response, err = http.DefaultTransport.RoundTrip(r); return err }) //nolint:bodyclose // whoever gets the response closes it
		if err != nil && response != nil {
			_ = response.Body.Close() // nobody reads it any more
			response = nil
		}
		return response, err
	}))
	return kit.NewReconciler(cached, live, nil, op)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// life runs one process until it dies or there is nothing left to do. Pods come up at once.
func (m *mortal) life(name string) {
	m.Helper()
	r := m.reconciler()
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: m.namespace, Name: name}}
	for range 30 {
		before := m.writes
		_, _ = r.Reconcile(m.Context(), request) // a process that is killed says nothing
		m.most = max(m.most, m.writes-before)
		if m.left <= 0 {
			return
		}
		if m.deployment(name) != nil {
			m.rollOut(name)
		}
		if m.writes == before && m.reason(name) == kit.ReasonReconciled {
			return
		}
	}
	m.Errorf("not ready after 30 passes: %s", m.reason(name))
}

// TestAnnouncedExactlyOnce: wherever the process dies, before or after anything that it does
// outside, the herald hears each greeting exactly once, and the Lolcow ends up as if nothing had
// happened.
func TestAnnouncedExactlyOnce(t *testing.T) {
	s := newScene(t)
	h := newHerald(t)
	steps := 0
	for n := 1; steps == 0; n++ {
		for _, after := range []bool{false, true} {
			requests, heard := h.seen()
			greetings := []string{fmt.Sprintf("first %d %v", n, after), fmt.Sprintf("second %d %v", n, after)}
			var last *mortal
			for i, greeting := range greetings {
				if i == 0 {
					s.create("cow", api.LolcowSpec{Greeting: greeting, AnnounceURL: h.URL})
				} else {
					s.change("cow", func(spec *api.LolcowSpec) { spec.Greeting = greeting })
				}
				last = &mortal{scene: s, left: n, after: after}
				last.life("cow")
				if i == 0 && last.left > 0 {
					steps = n // it did all it had to, and lived
				}
				last = &mortal{scene: s, left: 1000}
				last.life("cow")
			}
			now, all := h.seen()
			if diff := cmp.Diff(append(heard, greetings...), all); diff != "" {
				t.Fatalf("killed at step %d (after it: %v), the herald heard (-want +got):\n%s", n, after, diff)
			}
			if now-requests < 2 || now-requests > 4 {
				t.Errorf("killed at step %d: %d requests", n, now-requests)
			}
			if last.cached > 0 || last.direct == 0 {
				t.Errorf("the workspace was read %d times from the cache and %d times directly", last.cached, last.direct)
			}
			s.remembers(greetings[1])
			s.clear()
		}
	}
	if steps < 6 {
		t.Errorf("the operator did %d things only: two children, two of the workspace, the request and the status are more", steps)
	}
}

// remembers checks the workspace: it belongs to the Lolcow, has its name, and remembers the last
// greeting only.
func (s *scene) remembers(greeting string) {
	s.Helper()
	l, w := s.cow("cow"), get(s, "cow", &api.LolcowWorkspace{})
	if w == nil || !metav1.IsControlledBy(w, l) {
		s.Fatalf("the workspace does not belong to the Lolcow: %+v", w)
	}
	if len(w.Spec.Done) != 1 || len(w.Spec.Pending) != 0 {
		s.Errorf("the workspace remembers %+v", w.Spec)
	}
	for _, nonce := range w.Spec.Done {
		if text, err := json.Marshal(l.Status); err != nil || strings.Contains(string(text), nonce) {
			s.Errorf("the nonce is in the status %s: %v", text, err)
		}
	}
	if l.Status.Announced != greeting {
		s.Errorf("status.announced is %q, want %q", l.Status.Announced, greeting)
	}
}

// clear plays the garbage collector.
func (s *scene) clear() {
	s.Helper()
	for _, o := range []client.Object{s.cow("cow"), s.deployment("cow"), s.service("cow"), get(s, "cow", &api.LolcowWorkspace{})} {
		s.must(s.admin.Delete(s.Context(), o))
	}
}

// TestAnnouncementThatFails is a condition with the answer's status and nothing else of it; the
// next try has the same key. Redirects are not followed.
func TestAnnouncementThatFails(t *testing.T) {
	s := newScene(t)
	h := newHerald(t)
	s.create("cow", api.LolcowSpec{Greeting: "moo", AnnounceURL: h.URL})
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusInternalServerError, http.StatusForbidden} {
		h.set(status)
		m := &mortal{scene: s, left: 1000}
		result := m.until("cow", "!"+api.ReasonAnnounceFailed)
		message := meta.FindStatusCondition(s.cow("cow").Status.Conditions, kit.ConditionErrored).Message
		if !strings.Contains(message, fmt.Sprint(status)) || strings.Contains(message, "secret") {
			t.Errorf("the condition says %q", message)
		}
		if result.RequeueAfter < 30*time.Second {
			t.Errorf("it is tried again after %s", result.RequeueAfter)
		}
	}
	h.set(http.StatusOK)
	m := &mortal{scene: s, left: 1000}
	m.life("cow")
	if requests, heard := h.seen(); requests != 4 || !cmp.Equal(heard, []string{"moo"}) {
		t.Errorf("%d requests, heard %q", requests, heard)
	}
	h.Close()
	s.change("cow", func(spec *api.LolcowSpec) { spec.Greeting = "baa" })
	m.until("cow", "!"+api.ReasonAnnounceFailed)
}

// until makes passes until the Lolcow has a reason, and returns what the last one asked for.
func (m *mortal) until(name, reason string) (result reconcile.Result) {
	m.Helper()
	r := m.reconciler()
	for range 20 {
		var err error
		result, err = r.Reconcile(m.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: m.namespace, Name: name}})
		m.must(err)
		if m.deployment(name) != nil {
			m.rollOut(name)
		}
		if m.reason(name) == reason {
			return result
		}
	}
	m.Fatalf("%s after 20 passes, want %s", m.reason(name), reason)
	return result
}

// TestOneWritePerPass: each pass changes one thing, and one that finds nothing wrong changes none.
func TestOneWritePerPass(t *testing.T) {
	s := newScene(t)
	s.create("cow", api.LolcowSpec{Greeting: "moo", Port: 31300})
	m := &mortal{scene: s, left: 1000}
	m.life("cow")
	s.change("cow", func(spec *api.LolcowSpec) { spec.Greeting, spec.Port = "baa", 31301 })
	m.life("cow")
	if m.most != 1 {
		t.Errorf("up to %d writes in a pass", m.most)
	}
}

// TestOutdatedReadsAreNoErrors: a cache that shows nothing of the children, and writes that answer
// Conflict, end in no error and in no second child.
func TestOutdatedReadsAreNoErrors(t *testing.T) {
	s := newScene(t)
	s.create("cow", api.LolcowSpec{Greeting: "moo", Port: 31302})
	m := &mortal{scene: s, left: 1000, lag: true}
	conflicts := 0
	m.fail = func() error {
		if conflicts++; conflicts%2 == 0 {
			return nil
		}
		return apierrors.NewConflict(schema.GroupResource{Resource: "lolcows"}, "cow", errors.New("it has been changed"))
	}
	m.life("cow")
	if l := s.cow("cow"); s.reason("cow") != kit.ReasonReconciled || !meta.IsStatusConditionFalse(l.Status.Conditions, kit.ConditionErrored) {
		t.Errorf("conditions: %+v", l.Status.Conditions)
	}
	if conflicts < 6 {
		t.Errorf("%d writes only", conflicts)
	}
}

// TestLinkLocalIsRefused: what clouds tell their nodes at such addresses is for nobody else.
func TestLinkLocalIsRefused(t *testing.T) {
	for address, refused := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1]:80": true, "[::ffff:169.254.169.254]:80": true, "10.0.0.1:80": false, "127.0.0.1:80": false,
		"[fd00::1]:443": false,
	} {
		if err := lolcow.NotLinkLocal("tcp", address, nil); (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
}
