// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

// TestDeliveriesFollowHowSoonOrdersAreAnswered: 25 begin, the others when there is time for them.
func TestDeliveriesFollowHowSoonOrdersAreAnswered(t *testing.T) {
	cases := map[string]struct {
		takes       time.Duration
		then, limit int
	}{
		"at once": {then: 28, limit: 50},
		"slowly":  {takes: time.Second, then: 25, limit: 25},
	}
	const underWay = `
# HELP drover_deliveries Deliveries under way, of all Modules.
# TYPE drover_deliveries gauge
drover_deliveries `
	const mayBe = `
# HELP drover_deliveries_limit Most deliveries that may be under way: fewer while the API server answers orders slowly.
# TYPE drover_deliveries_limit gauge
drover_deliveries_limit `
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
			want := fmt.Sprintf("%s%d\n%s%d\n", underWay, tc.then, mayBe, tc.limit)
			if err := testutil.CollectAndCompare(board, strings.NewReader(want), "drover_deliveries", "drover_deliveries_limit"); err != nil {
				t.Error(err)
			}
		})
	}
}
