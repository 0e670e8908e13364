// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/rollout"
)

// deselected says from which clusters that are not selected, and have a Module, it is taken back now. With spec.rollout.maxConcurrency these are so many at a
// time, and more than that wait until somebody confirms it: a slip in a selector or a label would empty them all.
func deselected(m *hubv1beta1.ManagedClusterModule, parcels map[string]Parcel, selected map[string]bool, now time.Time) *rollout.Plan {
	policy := rollout.Policy{MaxUnavailable: everything, Confirmed: rollout.ConfirmedBy(m)}
	if r := m.Spec.Rollout; r != nil && r.MaxConcurrency != nil {
		policy.MaxUnavailable = *r.MaxConcurrency
	}
	nodes := make([]rollout.Node, 0, len(parcels))
	for _, name := range slices.Sorted(maps.Keys(parcels)) {
		n := rollout.Node{Name: name, Ready: true, Serving: true, Stage: rollout.Leaving}
		if selected[name] {
			n.Stage, n.Since = rollout.Given, now
		}
		nodes = append(nodes, n)
	}
	return rollout.Make(nodes, policy, now)
}

// massOf says that too many clusters are not selected any more.
func massOf(name string, d *Decision) string {
	text := fmt.Sprintf("%d clusters are no longer selected, which are more than spec.rollout.maxConcurrency, and keep the Module: %s. Bring the selector or their labels "+
		"back, or confirm it: kubectl annotate managedclustermodule %s --overwrite %s=$(date -u +%%FT%%TZ)",
		len(d.Mass), strings.Join(some(d.Mass), ", "), name, v1beta1.ConfirmDeselectionAnnotation)
	if !d.Confirmation.IsZero() {
		text += fmt.Sprintf("; that of %s does not count: it is not of the last hour by the hub's clock", d.Confirmation.UTC().Format(time.RFC3339))
	}
	return text
}
