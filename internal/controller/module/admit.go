// SPDX-License-Identifier: Apache-2.0

package module

import (
	"slices"

	"github.com/drover-project/drover/internal/drain"
)

// asking are the steps that want a slot for a new carrier, in the order in which they get one: where none failed yet,
// by name, so that the same nodes wait, then where the failure is oldest, so that those that always fail keep nobody out.
func (pl *planner) asking(steps []step) []*step {
	var asking []*step
	for i := range steps {
		if steps[i].request != nil {
			asking = append(asking, &steps[i])
		}
	}
	slices.SortStableFunc(asking, func(a, b *step) int {
		return pl.failed(a.view.name, a.image).Compare(pl.failed(b.view.name, b.image))
	})
	return asking
}

// names are the nodes of steps.
func names(steps []*step) []string {
	all := make([]string, len(steps))
	for i, s := range steps {
		all[i] = s.view.name
	}
	return all
}

// admit keeps the steps that do something. Of those that ask for a slot, those on the nodes that are granted one get it.
func (pl *planner) admit(steps []step, asking []*step, granted map[string]bool) *plan {
	m := pl.snap.module
	p := &plan{key: pl.snap.key, unloadsAll: m == nil || m.DeletionTimestamp != nil, blocked: pl.blocked, draining: pl.draining, holders: pl.holders, taints: pl.taints}
	for _, s := range asking {
		if !granted[s.view.name] {
			s.request, s.write = nil, nil
			p.queued++
		}
	}
	for _, s := range steps {
		if v := s.view; m != nil && v.node != nil && !s.remove && (v.follows() || s.write != nil) {
			p.remaining++
			if pl.leaves(&s) {
				p.left = append(p.left, v)
				s.uncordon = s.uncordon || drain.Marked(v.node, pl.snap.key)
			}
		}
		if !s.idle() {
			p.steps = append(p.steps, s)
		}
	}
	p.patience = pl.patience
	return p
}
