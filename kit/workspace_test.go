// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/kit"
)

// launcher is something outside of the cluster that takes two requests with one nonce for one.
type launcher struct {
	requests []string
	effects  map[string]bool
}

func (l *launcher) launch(nonce string) {
	l.requests = append(l.requests, nonce)
	l.effects[nonce] = true
}

func (r *rig) workspace() *GadgetWorkspace { return get(r, "g", &GadgetWorkspace{}) }

// TestAnEffectHappensOnce: the process is killed after each step, before what it has done is noted;
// there is one effect in the end, and no nonce is left.
func TestAnEffectHappensOnce(t *testing.T) {
	r := newRig(t)
	g := r.create("g")
	outside := &launcher{effects: map[string]bool{}}
	// The first life dies when the nonce is written, the second one after the request, the third one
	// when it is noted that it has happened.
	for life, dies := range []int{1, 1, 2, 0} {
		step := func() error {
			if dies--; dies == 0 {
				panic(errKilled)
			}
			return nil
		}
		dying := afterWrites(r.client, step)
		killed := untilKilled(func() {
			r.must(kit.Once(t.Context(), dying, r.client, g, &GadgetWorkspace{}, "launch", func(_ context.Context, nonce string) error {
				outside.launch(nonce)
				return step()
			}))
		})
		if killed != (life < 3) {
			t.Fatalf("life %d: killed %t", life, killed)
		}
	}
	if len(outside.effects) != 1 {
		t.Errorf("%d effects of the requests %q, want one", len(outside.effects), outside.requests)
	}
	if len(outside.requests) != 2 {
		t.Errorf("%d requests, want two: the second life cannot know that the first one was heard", len(outside.requests))
	}
	w := r.workspace()
	if len(w.Spec.Pending) != 0 || w.Spec.Done["launch"] != outside.requests[0] {
		t.Errorf("workspace %+v", w.Spec)
	}
	if owner := metav1.GetControllerOf(w); owner == nil || owner.UID != g.UID {
		t.Errorf("it belongs to %+v", owner)
	}
}

// TestANonceIsTakenUpAgain after a failure, and another effect has another one.
func TestANonceIsTakenUpAgain(t *testing.T) {
	r := newRig(t)
	g := r.create("g")
	outside := &launcher{effects: map[string]bool{}}
	once := func(effect string, answer error) error {
		return kit.Once(t.Context(), r.client, r.client, g, &GadgetWorkspace{}, effect, func(_ context.Context, nonce string) error {
			outside.launch(nonce)
			return answer
		})
	}
	away := errors.New("away")
	for range 2 {
		if err := once("first", away); !errors.Is(err, away) {
			t.Errorf("error %v", err)
		}
	}
	r.must(once("first", nil))
	r.must(once("first", nil))
	r.must(once("second", nil))
	if len(outside.requests) != 4 || len(outside.effects) != 2 {
		t.Errorf("requests %q, want three with one nonce and one with another", outside.requests)
	}
	if got := slices.Sorted(maps.Keys(r.workspace().Spec.Done)); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("done %q", got)
	}
}

// TestWorkspacesAreReadFromTheAPIServer: a cache that shows nothing of it changes nothing, for it
// is not asked.
func TestWorkspacesAreReadFromTheAPIServer(t *testing.T) {
	r := newRig(t)
	g := r.create("g")
	cached, live := 0, 0
	cache := interceptor.NewClient(r.client, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			cached++
			return errors.New("the cache knows nothing")
		},
	})
	reader := interceptor.NewClient(r.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			live++
			return c.Get(ctx, key, o, options...)
		},
	})
	calls := 0
	for range 3 {
		r.must(kit.Once(t.Context(), cache, reader, g, &GadgetWorkspace{}, "launch", func(context.Context, string) error { calls++; return nil }))
	}
	if calls != 1 || cached != 0 || live != 3 {
		t.Errorf("%d calls, %d reads from the cache, %d from the API server; want 1, 0 and 3", calls, cached, live)
	}
}

// TestTwoProcessesHaveOneEffect: the second one, which does not know of the first, takes its nonce.
func TestTwoProcessesHaveOneEffect(t *testing.T) {
	r := newRig(t)
	g := r.create("g")
	outside := &launcher{effects: map[string]bool{}}
	var inner error
	outer := kit.Once(t.Context(), r.client, r.client, g, &GadgetWorkspace{}, "launch", func(_ context.Context, nonce string) error {
		outside.launch(nonce)
		inner = kit.Once(t.Context(), r.client, r.client, g, &GadgetWorkspace{}, "launch", func(_ context.Context, nonce string) error {
			outside.launch(nonce)
			return nil
		})
		return nil
	})
	if inner != nil || kit.ProblemOf(outer) != nil || outer == nil {
		t.Errorf("the second: %v; the first: %v, want a conflict that ends as no condition", inner, outer)
	}
	if len(outside.effects) != 1 {
		t.Errorf("requests %q", outside.requests)
	}
}

// TestAForeignWorkspaceIsLeftAlone.
func TestAForeignWorkspaceIsLeftAlone(t *testing.T) {
	r := newRig(t)
	g := r.create("g")
	r.must(r.admin.Create(t.Context(), &GadgetWorkspace{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "g"}}))
	err := kit.Once(t.Context(), r.client, r.client, g, &GadgetWorkspace{}, "launch", func(context.Context, string) error {
		t.Error("called")
		return nil
	})
	if p := kit.ProblemOf(err); p == nil || p.Reason != kit.ReasonNameConflict || !p.Errored {
		t.Errorf("error %v", err)
	}
	if w := r.workspace(); len(w.Spec.Pending) != 0 {
		t.Errorf("it was written: %+v", w.Spec)
	}
}
