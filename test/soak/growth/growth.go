// SPDX-License-Identifier: Apache-2.0

// Package growth says what grows in a long run. It is pure.
package growth

import (
	"maps"
	"slices"
)

// Series are the values of one thing, each taken in the same state, oldest first.
type Series []float64

// Allowance is by how much a series may end higher than it began: noise, not growth.
type Allowance struct {
	// Share of where it began, and Slack in its unit; both together.
	Share, Slack float64
}

// least is how many values a verdict takes.
const least = 2

// third is how many values, at each end of a series, are compared.
func (s Series) third() int { return max(1, len(s)/3) }

// Ends are the medians of the first third of the values and of the last. A single high value, as of
// a moment that was not quite calm, changes neither.
func (s Series) Ends() (first, last float64) {
	if len(s) == 0 {
		return 0, 0
	}
	return median(s[:s.third()]), median(s[len(s)-s.third():])
}

// Grows says whether a series ends higher than it began by more than is allowed, or cannot be
// judged.
func (s Series) Grows(a Allowance) bool {
	first, last := s.Ends()
	return len(s) < least || last > first*(1+a.Share)+a.Slack
}

// Growing names the series that grow, sorted.
func Growing(all map[string]Series, allow func(name string) Allowance) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].Grows(allow(name)) {
			names = append(names, name)
		}
	}
	return names
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
