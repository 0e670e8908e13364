// SPDX-License-Identifier: Apache-2.0

package module

import "time"

const (
	// late is how long the API server takes for an order when it has too much to do. A node's report
	// and its labels wait in the same queue, several times.
	late = 250 * time.Millisecond
	// leastSlots stay, however slowly the API server answers: fewer make a load take longer without
	// making others wait less.
	leastSlots = 25
	// cutRest is the time from one cut to the next: answers that come together tell of the same crowd.
	cutRest = time.Second
)

// window is how many deliveries may keep the API server busy: as many as it takes, as a TCP sender
// has as many segments on their way as the network takes. It opens by one with each order that is
// answered soon, and narrows by a quarter where one is answered late. A new one is narrow. A
// delivery that only pulls, or waits, is none of them: see [nodeplan.QuietTime].
//
// Orders tell it, and not carriers: a webhook that looks at pods takes its time, however little the
// API server has to do.
type window struct {
	most, least, size int
	cut               time.Time // the last time that it narrowed
}

// newWindow is one that never opens for more than most.
func newWindow(most int) window {
	least := min(most, leastSlots)
	return window{most: most, least: least, size: least}
}

// answered notes that the API server has just answered an order, and how long that took.
func (w *window) answered(took time.Duration, now time.Time) {
	if took < late {
		w.size = min(w.size+1, w.most)
		return
	}
	// A clock that was set back must not keep it from narrowing.
	if since := now.Sub(w.cut); since >= cutRest || since < 0 {
		w.size, w.cut = max(w.size*3/4, w.least), now
	}
}
