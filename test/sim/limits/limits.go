// SPDX-License-Identifier: Apache-2.0

// Package limits notes on which nodes the changes of which Modules are under way, for the limit
// that they share (docs/design/0048-node-budget.md).
package limits

import (
	"fmt"
	"time"

	"github.com/drover-project/drover/test/sim/history"
)

// Verb begins histories with such a limit. It is never drawn.
const Verb = "SharedLimit"

// Begin has every fourth seed's history begin with two Modules that share a limit, of one node
// mostly. Then both change, and there is a node where the first one cannot; in every other one of
// them, a change for the next boot is reverted during a pause.
func Begin(seed uint64, events []history.Event) []history.Event {
	if seed%4 != 3 {
		return events
	}
	first := []history.Event{{Verb: Verb, A: uint8(seed / 4 % 4 / 3)}, {Verb: "OtherCreate"}}
	if seed/4%2 == 0 {
		first = append(first, history.Event{Verb: "Lull"}, history.Event{Verb: "Hold", A: uint8(seed / 8 % 3), B: 1},
			history.Event{Verb: "Image", A: 1}, history.Event{Verb: "OtherImage", A: 1})
	} else {
		first = append(first, history.Event{Verb: "Lull"}, history.Event{Verb: "UnloadPolicy", B: 3}, history.Event{Verb: "Calm", B: 5},
			history.Event{Verb: "PauseRollout", B: 1}, history.Event{Verb: "Image"}, history.Event{Verb: "Calm", B: 5},
			history.Event{Verb: "PauseRollout"}, history.Event{Verb: "UnloadPolicy", A: 1})
	}
	return append(first, events...)
}

// change is one Module's on one node.
type change struct{ node, module string }

// Shared is the limit, and what it bounds. The zero value is no limit.
type Shared struct {
	// Nodes may change at the same time; 0: any number.
	Nodes int

	// under are the changes that are under way, and since when, ended when others were over last.
	under, ended map[change]time.Time
	looked       map[string]bool
	restarted    time.Time
}

const (
	// lasts is how long a node may be kept for another Module's change, and a little more.
	lasts = time.Minute
	// stalls is how long a change counts that does not come about.
	stalls = 10 * time.Minute
)

// Flags are the operator's.
func (s *Shared) Flags() []string {
	if s.Nodes == 0 {
		return nil
	}
	return []string{fmt.Sprint("--max-unavailable-nodes=", s.Nodes)}
}

// Restarted forgets what the operator's process had in its memory.
func (s *Shared) Restarted(now time.Time) {
	s.under, s.ended, s.looked, s.restarted = map[change]time.Time{}, map[change]time.Time{}, map[string]bool{}, now
}

// Looked notes that the process has made a plan for a Module, Knows says whether it has.
func (s *Shared) Looked(module string)     { s.looked[module] = true }
func (s *Shared) Knows(module string) bool { return s.looked[module] }

// Begins notes that a node is told to change for a Module.
func (s *Shared) Begins(node, module string, now time.Time) { s.under[change{node, module}] = now }

// Ends notes that nothing of it is left to do.
func (s *Shared) Ends(node, module string, now time.Time) {
	if c := (change{node, module}); !s.under[c].IsZero() {
		delete(s.under, c)
		s.ended[c] = now
	}
}

// Under says whether a Module's change is under way on a node. Told says that one is ordered,
// perhaps by a process before this one. One that does not come about counts for a while only.
func (s *Shared) Under(node, module string, told bool, now time.Time) bool {
	since, has := s.under[change{node, module}]
	if !has {
		since = s.restarted
	}
	return (has || told) && now.Sub(since) < stalls
}

// Visited says whether it is, or was until just now.
func (s *Shared) Visited(node, module string, now time.Time) bool {
	at, has := s.ended[change{node, module}]
	return !s.under[change{node, module}].IsZero() || has && now.Sub(at) < lasts
}
