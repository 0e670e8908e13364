// SPDX-License-Identifier: Apache-2.0

package module

import (
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/placement"
)

// dressed is an entry with what annotations ask for. The result may be the entry itself, which is shared.
func dressed(entry *v1beta1.NodeModuleSpec, w placement.Wishes) *v1beta1.NodeModuleSpec {
	if asWished(entry, w) && entry.SkipChecks == w.SkipChecks {
		return entry
	}
	e := *entry
	e.Paused, e.SkipChecks, e.Retry = w.Paused, w.SkipChecks, w.Retry
	return &e
}

// asWished reports whether an entry says what matters to an order to unload.
func asWished(entry *v1beta1.NodeModuleSpec, w placement.Wishes) bool {
	return entry.Paused == w.Paused && entry.Retry.Equal(w.Retry)
}

// pause tells the node's agent of a pause, and of its end, and leaves everything else in the entry as it stands. Where
// nothing is ordered, nothing has to be said; an entry that Drover did not write is not touched at all.
func (s *step) pause(paused bool) {
	e := s.view.entry
	if e == nil || e.Paused == paused || e.Delivery == nil && e.State != v1beta1.NodeModuleAbsent {
		return
	}
	s.write = e.DeepCopy()
	s.write.Paused = paused
}
