// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"time"
)

// Rule is how reloads are judged.
type Rule struct {
	// Module is the kernel's name of the module.
	Module string
	// Limit is how many nodes may be unavailable under the policy that an order belongs to.
	Limit func(Order) int
	// Notice is how long the API must have shown that a node is down before whoever gives orders must
	// know. What was ordered before counts at once.
	Notice time.Duration
}

// Limits is how the limit was kept.
type Limits struct {
	// Exceeded are reloads that were ordered while as many nodes as may be, or more, were unavailable.
	Exceeded []Finding
	// Judged is how many reloads were looked at; WhileDown those that were ordered for nodes which the
	// API showed as down, where a reload takes nothing away.
	Judged, WhileDown int
	// Most is the most nodes that were unavailable when a reload was ordered, that node included.
	Most int
}

// track is a node prepared for many questions.
type track struct {
	Node
	states []state
}

// Judge looks at all reloads, each at the moment at which its order was written: nobody can take an
// order back from a node that is about to carry it out. The node itself does not count.
func Judge(nodes []Node, reloads []Reload, rule Rule) Limits {
	tracks := make(map[string]*track, len(nodes))
	for _, n := range nodes {
		tracks[n.Name] = &track{Node: n, states: states(n.Calls, rule.Module)}
	}
	var l Limits
	for _, r := range reloads {
		if !tracks[r.Node].shown(r.Order.Received) {
			l.WhileDown++
			continue
		}
		l.Judged++
		down := 0
		for name, t := range tracks {
			if name != r.Node && t.unavailable(r.Order, rule.Notice) {
				down++
			}
		}
		l.Most = max(l.Most, down+1)
		if limit := rule.Limit(r.Order); down >= limit {
			l.Exceeded = append(l.Exceeded, Finding{r.Node, r.Call.Time, fmt.Sprintf(
				"reloaded for %s, ordered at %s by %s while %d nodes were unavailable, of %d that may be",
				r.Order.Image, r.Order.Received.UTC().Format("15:04:05.000"), r.Order.By, down, limit)})
		}
	}
	return l
}

// unavailable says whether a node counts against the limit when an order for another is written: it
// has had the module, and an earlier order for it is not yet carried out, or its kernel holds
// nothing and everybody could know. A node that was told to unload has none to lose until it has
// loaded it again.
func (t *track) unavailable(o Order, notice time.Duration) bool {
	now := o.Received
	last := t.before(o.Revision)
	if last != nil && last.Absent || !t.hadSinceTold(o.Revision, now) {
		return false
	}
	if last != nil && !heldBetween(t.states, last.Want, last.Received, now) {
		return true
	}
	return held(t.states, now) == "" && t.shownDown(now.Add(-notice), now)
}

// before is the node's order in force before a write.
func (t *track) before(revision int64) *Order {
	for i := len(t.Orders) - 1; i >= 0; i-- {
		if t.Orders[i].Revision < revision {
			return &t.Orders[i]
		}
	}
	return nil
}

// hadSinceTold says whether the kernel held any build until a time, without what it was told to
// unload.
func (t *track) hadSinceTold(revision int64, now time.Time) bool {
	for i := len(t.Orders) - 1; i >= 0; i-- {
		if o := &t.Orders[i]; o.Revision < revision && o.Absent {
			return held(t.states, now) != "" || had(t.states[after(t.states, o.Received, from):], now)
		}
	}
	return had(t.states, now)
}

func since(s Sight) time.Time { return s.From }

// shown says whether the API showed the node as up.
func (t *track) shown(at time.Time) bool {
	i := after(t.Sights, at, since)
	return i > 0 && t.Sights[i-1].Up
}

// shownDown says whether the API showed the node as down all the time between two moments.
func (t *track) shownDown(begin, end time.Time) bool {
	i, j := after(t.Sights, begin, since), after(t.Sights, end, since)
	return i > 0 && !slices.ContainsFunc(t.Sights[i-1:j], func(s Sight) bool { return s.Up })
}
