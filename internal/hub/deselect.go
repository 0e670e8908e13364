// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// deselect decides which clusters that are not selected lose their Module now:
// spec.rollout.maxConcurrency of them at a time. If there are more, somebody must confirm it: a
// slip in a selector or a label would empty them all.
func (d *Decision) deselect(f *Facts, selected map[string]bool, now time.Time) {
	policy := rollout.Policy{MaxUnavailable: everything, Confirmed: rollout.ConfirmedBy(f.Module)}
	if r := f.Module.Spec.Rollout; r != nil && r.MaxConcurrency != nil {
		policy.MaxUnavailable = *r.MaxConcurrency
	}
	var nodes []rollout.Node
	for name, parcel := range f.Parcels {
		n := rollout.Node{Name: name, Ready: true, Serving: true, Stage: rollout.Leaving}
		switch {
		case selected[name]:
			n.Stage, n.Since = rollout.Given, now
		case parcel.Nothing || parcel.Going: // nothing is lost, or it is going already
			d.Recall = append(d.Recall, name)
			continue
		case parcel.Away != "": // it counts when it is reached again
			d.Kept = append(d.Kept, Left(&Target{Name: name, Unreachable: parcel.Away}, false))
			continue
		}
		nodes = append(nodes, n)
	}
	plan := rollout.Make(nodes, policy, now)
	d.Recall = slices.Sorted(slices.Values(slices.AppendSeq(d.Recall, maps.Keys(plan.Start))))
	d.Mass, d.Confirmation = plan.Mass, plan.Confirmation
	if at := plan.Again; !at.IsZero() && (d.Order.Again.IsZero() || at.Before(d.Order.Again)) {
		d.Order.Again = at
	}
}

// massOf says that too many clusters are no longer selected.
func massOf(name string, d *Decision) string {
	text := fmt.Sprintf("%d clusters are no longer selected, more than spec.rollout.maxConcurrency, and keep the Module: %s. Restore the "+
		"selector or their "+
		"labels, or confirm it: kubectl annotate managedclustermodule %s --overwrite %s=$(date -u +%%FT%%TZ)",
		len(d.Mass), strings.Join(some(d.Mass), ", "), name, v1beta1.ConfirmDeselectionAnnotation)
	if !d.Confirmation.IsZero() {
		text += fmt.Sprintf("; the confirmation of %s does not count: by the hub's clock, it is not of the last hour",
			d.Confirmation.UTC().Format(time.RFC3339))
	}
	return text
}
