// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// The nodes beat one after another, so that an API server which is away for a moment is missed by a few of them only. The cluster misses
// the renewals of others as well: its own watch of the leases comes back late.
func TestAnOutageThatOneNodeSawIsEveryNodes(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	shared := &api{}
	saw, missedIt := &node{name: "saw", api: shared, clock: clock}, &node{name: "missed", api: shared, clock: clock}
	if missedIt.recovering() {
		t.Error("recovering before anything happened")
	}
	saw.note(t.Context(), errors.New("connection refused"))
	saw.note(t.Context(), nil)
	if !missedIt.recovering() {
		t.Error("a node that saw nothing of the outage does not look whether the cluster calls it unknown")
	}
	clock.Step(aftermath)
	if missedIt.recovering() {
		t.Errorf("still recovering %v after the outage", aftermath)
	}
}
