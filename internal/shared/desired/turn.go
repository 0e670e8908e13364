// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Part is a node's part of the rollout of m, of which a is wanted there; false: it has none. Of the
// facts, Config, Delivery and Unknown are the answer's; all others are the caller's.
func Part(m *v1beta1.Module, a *Answer, f rollout.Facts) (rollout.Node, bool) {
	follows := f.Order != nil || f.Live != nil
	switch wanted := placement.Wanted(m, f.Node, follows); {
	case wanted && a.State != nil:
		f.Config, f.Delivery = &a.State.Config, a.State.Delivery
		// Without its image, it can take no turn.
		f.Paused = f.Paused || a.Missing(f.Holds) != nil
	case !follows:
		return rollout.Node{}, false
	case wanted && a.Err != nil:
		f.Unknown = true
	}
	return rollout.Observe(&f), true
}
