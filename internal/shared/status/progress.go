// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/words"
)

// progress says how far a rollout is; empty: nobody waits for a turn. It names no time that passes,
// so that the message stays the same while nothing happens.
func progress(m *Module) string {
	p := m.Rollout
	if p == nil || p.Waiting == 0 {
		return ""
	}
	text := fmt.Sprintf("; rollout: %d of %s %s generation %d", p.Done, words.Count(p.Total, "node"), verb(p.Total, "has", "have"),
		m.Generation)
	if p.Underway > 0 {
		text += fmt.Sprintf(", %d under way", p.Underway)
	}
	if p.Away > 0 {
		text += fmt.Sprintf(", %d waiting but not Ready", p.Away)
	}
	switch {
	case p.Halt == rollout.HaltPaused:
		text += ", paused by spec.rollout.paused"
	case p.Halt == rollout.HaltFailed:
		text += fmt.Sprintf(", paused: %s %s failed (%s)", words.Plural(len(p.Failed), "node"), words.List(p.Failed, maxNames), p.Reason)
	case p.Trial:
		text += ", the first node must hold the change before the others begin"
	case p.Unavailable >= p.Limit:
		text += fmt.Sprintf(", %d of at most %d unavailable%s", p.Unavailable, p.Limit, failures(p))
	}
	return text
}

func failures(p *rollout.Plan) string {
	if len(p.Failed) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s failed (%s)", words.List(p.Failed, maxNames), p.Reason)
}

// mass is about too many deselected nodes at once, which may be a mistake.
func mass(p *rollout.Plan) string {
	text := fmt.Sprintf("%s %s no longer selected or without a mapping, but at most %d may be unavailable at a time, so nothing is "+
		"unloaded on %s; "+
		"restore the labels or the mapping, or confirm by setting the annotation %s to the current time (RFC 3339)",
		words.Count(len(p.Mass), "node"), verb(len(p.Mass), "is", "are"), p.Limit, words.List(p.Mass, maxNames),
		v1beta1.ConfirmDeselectionAnnotation)
	if !p.Confirmation.IsZero() {
		text += fmt.Sprintf("; the confirmation of %s does not count: it is not from the last hour by the operator's clock",
			p.Confirmation.UTC().Format(time.RFC3339))
	}
	return text
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
