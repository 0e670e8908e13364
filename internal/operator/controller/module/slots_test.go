// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestACarrierGoesBeforeAnotherTakesItsSlot: else more carriers would stand than there are slots.
func TestACarrierGoesBeforeAnotherTakesItsSlot(t *testing.T) {
	w := newWorld(t)
	// The second node is the first that the pass comes to.
	second, first := w.node("a"), w.node("b")
	w.relabel(second, "later")
	m := w.module("nic")
	var mu sync.Mutex
	var order []string
	note := func(verb string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, verb)
	}
	c := interceptor.NewClient(w.operator, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			note("create")
			return c.Create(ctx, object, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			note("delete")
			return c.Delete(ctx, object, options...)
		},
	})
	w.control = module.New(c, c, module.Options{
		AgentImage: env.AgentImage, DeliveryMode: delivery.ModeAuto, DeliveryMaxInFlight: 1, Parallelism: 1, Clock: w.clock,
	})
	w.pass(m)
	w.relabel(second, w.namespace)
	w.pass(m)
	w.agent(first, loaded(w.ordered(first, m)))

	w.pass(m)

	if diff := cmp.Diff([]string{"create", "delete", "create"}, order); diff != "" {
		t.Errorf("carriers (-want +got):\n%s", diff)
	}
}

// TestNoCarrierNoSlot: what one Module cannot have made takes nothing from the others.
func TestNoCarrierNoSlot(t *testing.T) {
	for name, tc := range map[string]struct {
		answer error
		fails  bool
	}{
		"refused": {answer: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("exceeded quota: pods"))},
		"failed":  {answer: apierrors.NewInternalError(errors.New("etcd has no leader")), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a")
			broken, well := w.module("broken"), w.module("well")
			board := metrics.NewBoard()
			c := interceptor.NewClient(w.operator, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if object.GetLabels()[v1beta1.ModuleNameLabel] == broken.Name {
						return tc.answer
					}
					return c.Create(ctx, object, options...)
				},
			})
			w.control = module.New(c, c, module.Options{
				AgentImage: env.AgentImage, DeliveryMode: delivery.ModeAuto, DeliveryMaxInFlight: 1, Clock: w.clock, Metrics: board,
			})
			if _, err := w.control.Reconcile(t.Context(), request(broken)); (err != nil) != tc.fails {
				t.Fatalf("the pass of what is broken ends with %v", err)
			}
			told(t, board, 0, 1)

			w.pass(well)

			if len(w.carriers(well)) != 1 {
				t.Error("the only slot is held by a Module that has no carrier")
			}
		})
	}
}

// TestDeliveriesFollowHowSoonOrdersAreAnswered: 25 begin, the others when there is time for them.
func TestDeliveriesFollowHowSoonOrdersAreAnswered(t *testing.T) {
	cases := map[string]struct {
		takes       time.Duration
		then, limit int
	}{
		"at once": {then: 28, limit: 50},
		"slowly":  {takes: 300 * time.Millisecond, then: 25, limit: 25},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for i := range 28 {
				w.node(fmt.Sprintf("%02d", i))
			}
			m := w.module("nic")
			var mu sync.Mutex
			c := interceptor.NewClient(w.operator, interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					mu.Lock()
					w.clock.SetTime(w.clock.Now().Add(tc.takes))
					mu.Unlock()
					return c.Apply(ctx, object, options...)
				},
			})
			board := metrics.NewBoard()
			w.control = module.New(c, c, module.Options{
				AgentImage: env.AgentImage, DeliveryMode: delivery.ModeAuto, Clock: w.clock, Metrics: board,
			})
			w.pass(m)
			if began := len(w.carriers(m)); began != 25 {
				t.Errorf("%d deliveries begin, want 25", began)
			}

			w.pass(m)

			if got := len(w.carriers(m)); got != tc.then {
				t.Errorf("%d deliveries are under way after the next pass, want %d", got, tc.then)
			}
			told(t, board, tc.then, tc.limit)
		})
	}
}

// TestOrdersThatFail: one that fails late tells of an API server with too much to do. One that is
// refused at once, by a webhook for example, tells nothing.
func TestOrdersThatFail(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		limit int
	}{
		"late":    {takes: 30 * time.Second, limit: 25},
		"at once": {limit: 26},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a")
			m := w.module("nic")
			fails := false
			c := interceptor.NewClient(w.operator, interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if !fails {
						return c.Apply(ctx, object, options...)
					}
					w.clock.SetTime(w.clock.Now().Add(tc.takes))
					return apierrors.NewInternalError(errors.New("the order is not written"))
				},
			})
			board := metrics.NewBoard()
			w.control = module.New(c, c, module.Options{
				AgentImage: env.AgentImage, DeliveryMode: delivery.ModeAuto, Clock: w.clock, Metrics: board,
			})
			w.pass(m)
			w.node("b")
			fails = true
			if _, err := w.control.Reconcile(t.Context(), request(m)); err == nil {
				t.Fatal("an order was not written, and nobody is told")
			}
			fails = false

			w.pass(m)

			told(t, board, len(w.carriers(m)), tc.limit)
		})
	}
}

// told compares how many deliveries are told to be under way, and to be allowed.
func told(t *testing.T, board *metrics.Board, underWay, limit int) {
	t.Helper()
	want := fmt.Sprintf(`
# HELP drover_deliveries Deliveries under way, of all Modules.
# TYPE drover_deliveries gauge
drover_deliveries %d
# HELP drover_deliveries_limit Most deliveries that may keep the API server busy: fewer while it answers orders slowly.
# TYPE drover_deliveries_limit gauge
drover_deliveries_limit %d
`, underWay, limit)
	if err := testutil.CollectAndCompare(board, strings.NewReader(want), "drover_deliveries", "drover_deliveries_limit"); err != nil {
		t.Error(err)
	}
}
