// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/internal/operator/controller/module"
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
