// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// fullStore has room for so many deliveries.
type fullStore struct {
	execute.Store
	room int
}

func (s fullStore) Import(ctx context.Context, id string, carrier types.UID) (string, error) {
	held, err := s.Held()
	if err == nil && held[id] == "" && len(held) >= s.room {
		err = fmt.Errorf("import: %w", syscall.ENOSPC)
	}
	if err != nil {
		return "", err
	}
	return s.Store.Import(ctx, id, carrier)
}

// TestFullStore: what only a way back would need makes room for what is ordered; what is ordered,
// or has to serve, does not go.
func TestFullStore(t *testing.T) {
	for name, test := range map[string]struct {
		room    int
		attempt string
		held    []string
		live    string
	}{
		"room for all":           {room: 3, held: []string{"d1", "d2", "d3"}, live: "d3"},
		"the step back makes it": {room: 2, held: []string{"d2", "d3"}, live: "d3"},
		"all of it is wanted":    {room: 1, attempt: "Failed AgentFailed", held: []string{"d1"}, live: "d1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			r.agent.o.Store = fullStore{Store: r.agent.o.Store, room: test.room}
			var s *v1beta1.NodeModulesConfigStatus
			for _, id := range []string{"d1", "d2", "d3"} {
				s = r.pass(order("gadget", r.deliver(id, synth.Module{Name: "gadget", Version: id})))
				r.clock.Step(time.Hour)
			}
			same(t, "attempt", test.attempt, attempt(s, "gadget"))
			held, err := r.agent.o.Store.Held()
			if err != nil {
				t.Fatal(err)
			}
			same(t, "held", test.held, slices.Sorted(maps.Keys(held)))
			same(t, "live", test.live, s.Modules[0].Observed.Delivery)
		})
	}
}
