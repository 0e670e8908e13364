// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/pipeline/result"
)

// TestALostImageThatCannotBeMadeSaysWhy: the registry's loss is told with the failure to mend it.
// As long as nobody could ask the registry, a node's word keeps no other node waiting.
func TestALostImageThatCannotBeMadeSaysWhy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := run(1, func(r *pipeline.Run) {
		r.Succeeded, r.Recorded, r.Finished, r.Outcome.Digest = true, true, now.Add(-time.Hour), "sha256:a"
	})
	for name, tc := range map[string]struct {
		state  result.State
		reason string
		status metav1.ConditionStatus
		says   string
	}{
		"found missing":        {result.StateMissing, v1beta1.ReasonPullUnauthorized, metav1.ConditionFalse, "has lost"},
		"the registry is away": {"", v1beta1.ReasonImagesAvailable, metav1.ConditionTrue, "as far as is known"},
	} {
		bad := run(2, func(r *pipeline.Run) {
			r.Failed, r.Recorded, r.Finished, r.Outcome = true, true, now,
				pipeline.Outcome{Reason: v1beta1.ReasonPullUnauthorized, Message: "the token has expired", Passing: true, State: tc.state}
		})
		for _, at := range []time.Time{now.Add(time.Second), now.Add(longPause)} { // between tries, and at the next
			c := decide(wanted(), []pipeline.Run{good, bad}, now.Add(-time.Minute), at).status.Conditions[0]
			if c.Status != tc.status || c.Reason != tc.reason || !strings.Contains(c.Message, tc.says) ||
				!strings.Contains(c.Message, "the token has expired") || strings.Contains(c.Message, "was made") {
				t.Errorf("%s: %s %s: %s", name, c.Status, c.Reason, c.Message)
			}
		}
	}
}
