// SPDX-License-Identifier: Apache-2.0

package strikes_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/strikes"
)

func TestOutside(t *testing.T) {
	at := func(node string, minute int) strikes.Mark {
		return strikes.Mark{Node: node, At: time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC)}
	}
	type marks = []strikes.Mark
	tests := map[string]struct{ given, then marks }{
		"none":                       {},
		"three nodes are not enough": {given: marks{at("a", 0), at("b", 1), at("c", 2)}},
		"one node often is not":      {given: marks{at("a", 0), at("a", 1), at("a", 2), at("a", 3), at("a", 4)}},
		"three nodes often are not":  {given: marks{at("a", 0), at("b", 1), at("c", 2), at("a", 3), at("b", 4)}},
		"four over a longer time":    {given: marks{at("a", 0), at("b", 4), at("c", 8), at("d", 11)}},
		"four within the window": {given: marks{at("a", 0), at("b", 4), at("c", 8), at("d", 10)},
			then: marks{at("a", 0), at("b", 4), at("c", 8), at("d", 10)}},
		"in any order": {given: marks{at("d", 9), at("b", 4), at("a", 0), at("c", 8)},
			then: marks{at("a", 0), at("b", 4), at("c", 8), at("d", 9)}},
		"a lone one before stays one": {given: marks{at("a", 0), at("b", 20), at("c", 21), at("d", 22), at("e", 23)},
			then: marks{at("b", 20), at("c", 21), at("d", 22), at("e", 23)}},
		"a lone one after stays one": {given: marks{at("b", 0), at("c", 1), at("d", 2), at("e", 3), at("f", 40)},
			then: marks{at("b", 0), at("c", 1), at("d", 2), at("e", 3)}},
		"windows that overlap count": {given: marks{at("a", 0), at("b", 3), at("c", 6), at("d", 9), at("e", 12)},
			then: marks{at("a", 0), at("b", 3), at("c", 6), at("d", 9), at("e", 12)}},
		"a node's second one counts too": {given: marks{at("a", 0), at("a", 1), at("b", 2), at("c", 3), at("d", 4)},
			then: marks{at("a", 0), at("a", 1), at("b", 2), at("c", 3), at("d", 4)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.then, strikes.Outside(test.given)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
