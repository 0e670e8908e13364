// SPDX-License-Identifier: Apache-2.0

package gate_test

import (
	"testing"

	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/reasons"
)

func TestGateTellsOfChangesOnly(t *testing.T) {
	var nobody *gate.Gate
	if nobody.Closed() != nil {
		t.Error("no gate is an open one")
	}
	g, told := &gate.Gate{}, 0
	g.Watch(func() { told++ })
	for i, step := range []struct {
		given *reasons.Problem
		then  int
	}{
		{nil, 0}, {&reasons.Problem{Reason: "A"}, 1}, {&reasons.Problem{Reason: "A"}, 1}, {&reasons.Problem{Reason: "B"}, 2}, {nil, 3}, {nil, 3},
	} {
		g.Set(step.given)
		if told != step.then {
			t.Errorf("step %d: told %d times, want %d", i, told, step.then)
		}
		if p := g.Closed(); (p == nil) != (step.given == nil) || p != nil && *p != *step.given {
			t.Errorf("step %d: %v", i, p)
		}
	}
}
