// SPDX-License-Identifier: Apache-2.0

package growth_test

import (
	"slices"
	"testing"

	"github.com/drover-project/drover/test/soak/growth"
)

func TestGrows(t *testing.T) {
	allowed := growth.Allowance{Share: 0.1, Slack: 2}
	for _, tc := range []struct {
		name  string
		given growth.Series
		grows bool
	}{
		{name: "flat", given: growth.Series{100, 100, 100, 100, 100, 100}},
		{name: "shrinks", given: growth.Series{100, 90, 80, 70, 60, 50}},
		{name: "noise within what is allowed", given: growth.Series{100, 104, 98, 103, 110, 111}},
		{name: "a little at a time, and it adds up", given: growth.Series{100, 105, 110, 115, 120, 125}, grows: true},
		{name: "a step that stays", given: growth.Series{100, 100, 100, 100, 150, 150}, grows: true},
		{name: "one high value", given: growth.Series{100, 100, 100, 100, 400, 100, 100, 300, 100}},
		{name: "one low value at first hides nothing", given: growth.Series{100, 0, 100, 100, 130, 130, 130, 130, 130}, grows: true},
		{name: "from nothing, within the slack", given: growth.Series{0, 0, 1, 1, 2, 2}},
		{name: "from nothing, beyond it", given: growth.Series{0, 0, 2, 2, 4, 4}, grows: true},
		{name: "exactly what is allowed", given: growth.Series{100, 112}},
		{name: "two values", given: growth.Series{100, 113}, grows: true},
		{name: "one value says nothing", given: growth.Series{100}, grows: true},
		{name: "no value says nothing", grows: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.given.Grows(allowed); got != tc.grows {
				first, last := tc.given.Ends()
				t.Errorf("grows: %t, from %v to %v", got, first, last)
			}
		})
	}
}

func TestGrowing(t *testing.T) {
	all := map[string]growth.Series{"b": {1, 9}, "a": {1, 9}, "flat": {1, 1}, "allowed": {1, 9}}
	got := growth.Growing(all, func(name string) growth.Allowance {
		if name == "allowed" {
			return growth.Allowance{Slack: 10}
		}
		return growth.Allowance{}
	})
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v grow", got)
	}
}
