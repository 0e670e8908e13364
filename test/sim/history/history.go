// SPDX-License-Identifier: Apache-2.0

// Package history says what a history is: events in a row, drawn from a seed, of which every part
// is a history, too.
package history

import (
	_ "embed" // the corpus
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Event is one event of a history. What its numbers mean is fixed by the verb.
type Event struct {
	Verb string
	A, B uint8
}

func (e Event) String() string { return fmt.Sprintf("%s(%d,%d)", e.Verb, e.A, e.B) }

// Verb is a kind of event, and how often it is drawn.
type Verb struct {
	Name   string
	Weight int
	// Machinery is what goes on by itself: no history is without it.
	Machinery bool
	// Opens: every other history begins with it, of those that do not begin as one of the corpus does.
	Opens bool
}

// Generate draws n events from a seed. Each history has a mix of its own: of what people and
// machines do, some happens often and some never. Every other history begins as one of the corpus
// does, with some numbers that are different, so that it gets to where chance seldom leads.
func Generate(seed uint64, n int, verbs []Verb, corpus [][]Event) []Event {
	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // to be repeated
	events := make([]Event, 0, n)
	if len(corpus) > 0 && r.IntN(2) == 0 {
		events = append(events, corpus[r.IntN(len(corpus))]...)
		events = events[:min(n, len(events))]
		for i := range events {
			switch r.IntN(16) {
			case 0:
				events[i].A = uint8(r.IntN(256)) //nolint:gosec // below 256
			case 1:
				events[i].B = uint8(r.IntN(256)) //nolint:gosec // below 256
			}
		}
	}
	for _, v := range verbs {
		if v.Opens && len(events) < min(n, 1) && r.IntN(2) == 0 {
			events = append(events, Event{v.Name, 0, 0})
		}
	}
	weights, total := make([]int, len(verbs)), 0
	for i, v := range verbs {
		weights[i] = v.Weight
		if !v.Machinery {
			weights[i] *= []int{0, 0, 1, 4}[r.IntN(4)]
		}
		total += weights[i]
	}
	for len(events) < n {
		at := r.IntN(total)
		for j, weight := range weights {
			if at -= weight; at < 0 {
				events = append(events, Event{verbs[j].Name, uint8(r.IntN(256)), uint8(r.IntN(256))}) //nolint:gosec // below 256
				break
			}
		}
	}
	return events
}

//go:embed corpus.txt
var corpusText string

// Corpus are beginnings of histories that lead to states which few histories meet. Its file has a
// line for each, as [Text] writes it.
func Corpus() (all [][]Event, err error) {
	for line := range strings.Lines(corpusText) {
		events, err := Parse(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		all = append(all, events)
	}
	return all, nil
}

// Text writes a history as one line.
func Text(events []Event) string {
	parts := make([]string, len(events))
	for i, e := range events {
		parts[i] = e.String()
	}
	return strings.Join(parts, " ")
}

// Parse reads what [Text] wrote.
func Parse(line string) (events []Event, err error) {
	for _, word := range strings.Fields(line) {
		e := Event{}
		verb, numbers, _ := strings.Cut(word, "(")
		if _, err := fmt.Sscanf(numbers, "%d,%d)", &e.A, &e.B); err != nil || verb == "" {
			return nil, fmt.Errorf("%q is no event: %w", word, err)
		}
		e.Verb = verb
		events = append(events, e)
	}
	return events, nil
}

// Literal writes a history as Go does.
func Literal(events []Event) string {
	parts := make([]string, 0, len(events))
	for _, e := range events {
		parts = append(parts, fmt.Sprintf("{%q, %d, %d}", e.Verb, e.A, e.B))
	}
	return "[]history.Event{" + strings.Join(parts, ", ") + "}"
}

// Shrink finds a shorter history that fails, too, in at most so many tries: chunks go, ever smaller
// ones, then numbers become smaller.
func Shrink(events []Event, fails func([]Event) bool, tries int) []Event {
	try := func(candidate []Event) bool {
		tries--
		return tries >= 0 && fails(candidate)
	}
	for size := len(events) / 2; size > 0; {
		gone := false
		for at := 0; at+size <= len(events); {
			if candidate := slices.Delete(slices.Clone(events), at, at+size); try(candidate) {
				events, gone = candidate, true
			} else {
				at += size
			}
		}
		if !gone || size > 1 {
			size /= 2
		}
	}
	for i := range events {
		for _, number := range []func(*Event) *uint8{func(e *Event) *uint8 { return &e.A }, func(e *Event) *uint8 { return &e.B }} {
			for smaller := range min(*number(&events[i]), 6) {
				candidate := slices.Clone(events)
				*number(&candidate[i]) = smaller
				if try(candidate) {
					events = candidate
					break
				}
			}
		}
	}
	return events
}
