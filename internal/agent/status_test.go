// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/orders"
)

func TestCountsOfTriesStayTrueEnough(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV"})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	tries, at := r.last.Attempts[0].Attempt, r.clock.Now()
	same(t, "tries told of at once", 1, int(tries))
	for range 2 * 60 * 12 { // two hours
		r.clock.Step(5 * time.Second)
		r.pass(o)
		told := r.last.Attempts[0]
		if told.NextRetry == nil || r.clock.Since(told.NextRetry.Time) >= 2*orders.RetryMax {
			t.Fatalf("%v after the first try, nextRetry is %v", r.clock.Since(at), told.NextRetry)
		}
		if made := len(r.host.Calls()); r.clock.Since(at) > 2*orders.RetryMax && made-int(told.Attempt) > 1 {
			t.Fatalf("%v after the first try, %d tries were made, and the status says %d", r.clock.Since(at), made, told.Attempt)
		}
	}
	if limit := int(2*time.Hour/orders.RetryMax) + 1; r.writes > limit {
		t.Errorf("%d writes in two hours, want at most %d", r.writes, limit)
	}
}
