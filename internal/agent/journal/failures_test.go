// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/orders"
)

// TestThePauseAfterARollBack ends in time, whatever the clock does: the agent starts anew, and a
// process's own clock with it.
func TestThePauseAfterARollBack(t *testing.T) {
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		times  int
		reason string
		now    time.Time
		over   bool
	}{
		"at once":                    {times: 1, now: began},
		"after the first pause":      {times: 1, now: began.Add(time.Hour), over: true},
		"within the longest":         {times: 9, now: began.Add(23 * time.Hour)},
		"after the longest":          {times: 9, now: began.Add(24 * time.Hour), over: true},
		"an hour back":               {times: 1, now: began.Add(-time.Hour)},
		"ten years back":             {times: 1, now: began.AddDate(-10, 0, 0), over: true},
		"ten years back, and longer": {times: 9, now: began.AddDate(-10, 0, 0), over: true},
		"for good":                   {times: 1, reason: v1beta1.ReasonSignatureRejected, now: began.AddDate(1, 0, 0)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j, k := &Journal{}, orders.Key{Namespace: "team", Name: "nic"}
			for range tc.times {
				j.RollBack(k, "hash", orders.Attempt{Reason: tc.reason, Message: "message"}, began)
			}
			if got := j.RolledBack[k].Over(tc.now); got != tc.over {
				t.Errorf("over: %v, until %s", got, j.RolledBack[k].Until)
			}
		})
	}
}
