// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"regexp"
	"testing"
)

// numbered begins every name with the number of its case.
var numbered = regexp.MustCompile(`^[0-9]+_[a-z0-9_]+$`)

// TestConformance runs all numbered tests at the same time: most of their time is waiting.
func TestConformance(t *testing.T) {
	for _, group := range []map[string]func(*testing.T){admission, orders, departures, deliveries, loading, programs, workloads, spoke} {
		for name, test := range group {
			if !numbered.MatchString(name) {
				t.Errorf("%q is not a number and words", name)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	}
}
