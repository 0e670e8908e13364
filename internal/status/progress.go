// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/rollout"
	"github.com/drover-project/drover/internal/words"
)

// progress tells how far a rollout is; empty when nobody waits for a turn. It names no time that passes, so that it does not change by itself.
func progress(m *Module) string {
	p := m.Rollout
	if p == nil || p.Waiting == 0 {
		return ""
	}
	text := fmt.Sprintf("; rollout: %d of %s %s generation %d", p.Done, words.Count(p.Total, "node"), has(p.Total), m.Generation)
	if p.Underway > 0 {
		text += fmt.Sprintf(", %d under way", p.Underway)
	}
	if p.Away > 0 {
		text += fmt.Sprintf(", %d of those that wait not Ready", p.Away)
	}
	switch {
	case p.Halt == rollout.HaltPaused:
		text += ", paused by spec.rollout.paused"
	case p.Halt == rollout.HaltFailed:
		text += fmt.Sprintf(", paused: %s %s failed (%s)", words.Plural(len(p.Failed), "node"), words.List(p.Failed, maxNames), p.Reason)
	case p.Trial:
		text += ", the first node has to hold it before the others begin"
	case p.Unavailable >= p.Limit:
		text += fmt.Sprintf(", %d unavailable of at most %d%s", p.Unavailable, p.Limit, failures(p))
	}
	return text
}

// failures tells of nodes that failed and take the places of others.
func failures(p *rollout.Plan) string {
	if len(p.Failed) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s failed (%s)", words.List(p.Failed, maxNames), p.Reason)
}

// mass tells of nodes that are no longer selected and are too many to believe it.
func mass(p *rollout.Plan) string {
	text := fmt.Sprintf("%s no longer selected or without a mapping, and at most %d may be unavailable at a time: nothing is unloaded on %s; "+
		"bring the labels back, or confirm with the annotation %s set to the present time (RFC 3339)",
		strings.Replace(words.Count(len(p.Mass), "node")+" are", "1 node are", "1 node is", 1), p.Limit, words.List(p.Mass, maxNames), v1beta1.ConfirmDeselectionAnnotation)
	if !p.Confirmation.IsZero() {
		text += fmt.Sprintf("; that of %s does not count: it is not of the last hour by the operator's clock", p.Confirmation.UTC().Format(time.RFC3339))
	}
	return text
}

func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}
