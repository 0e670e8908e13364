// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSizes(t *testing.T) {
	cases := map[string]struct {
		text string
		want []int
	}{
		"one":                {text: "500", want: []int{500}},
		"several":            {text: "5000, 500,2000,500", want: []int{500, 2000, 5000}},
		"none":               {text: ""},
		"no number":          {text: "500,many"},
		"a fleet of nothing": {text: "0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseSizes(c.text)
			if (err == nil) != (c.want != nil) {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGrowth(t *testing.T) {
	of := func(nodes int, seconds float64) result {
		return result{Nodes: nodes, Load: use{CPUSeconds: map[string]float64{"operator": seconds}}}
	}
	cases := map[string]struct {
		results []result
		ratio   float64
		wrong   string
	}{
		"linear":               {results: []result{of(500, 3), of(5000, 30)}, ratio: 1},
		"the other way round":  {results: []result{of(5000, 30), of(500, 3)}, ratio: 1},
		"quadratic":            {results: []result{of(500, 3), of(2000, 30), of(5000, 300)}, ratio: 10, wrong: "10.00 is above 1.3"},
		"nothing was measured": {results: []result{of(500, 0), of(5000, 0)}, wrong: "NaN is above"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := compare(c.results)
			if c.ratio != 0 && g.OperatorCPUPerNodeRatio != c.ratio {
				t.Errorf("ratio %v, want %v", g.OperatorCPUPerNodeRatio, c.ratio)
			}
			switch err := g.wrong(); {
			case c.wrong == "" && err != nil:
				t.Error(err)
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("error %v, want %q", err, c.wrong)
			}
			var table strings.Builder
			if err := g.print(&table); err != nil || strings.Count(table.String(), "\n") != 1+len(c.results) {
				t.Errorf("%v, table:\n%s", err, table.String())
			}
		})
	}
}
