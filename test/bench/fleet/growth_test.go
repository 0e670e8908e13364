// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/test/bench/measure"
)

func TestParseSizes(t *testing.T) {
	cases := map[string]struct {
		nodes, modules string
		want           []size
	}{
		"one":                {nodes: "500", modules: "1", want: []size{{500, 1}}},
		"several":            {nodes: "5000, 500,2000,500", modules: "1", want: []size{{500, 1}, {2000, 1}, {5000, 1}}},
		"with Modules":       {nodes: "500,50", modules: "5,1", want: []size{{50, 1}, {50, 5}, {500, 1}, {500, 5}}},
		"none":               {modules: "1"},
		"no number":          {nodes: "500,many", modules: "1"},
		"no Modules":         {nodes: "500", modules: "0"},
		"a fleet of nothing": {nodes: "0", modules: "1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseSizes(c.nodes, c.modules)
			if (err == nil) != (c.want != nil) {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(size{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCopies: each has a kernel module and images of its own.
func TestCopies(t *testing.T) {
	all, err := copies("../../../"+sampleFile, 3)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range all {
		container := m.Spec.ModuleLoader.Container
		for _, own := range []string{m.Name, container.Modprobe.ModuleName, container.KernelMappings[0].ContainerImage} {
			if seen[own] {
				t.Errorf("two have %s", own)
			}
			seen[own] = true
		}
		if m.Spec.DevicePlugin != nil || !strings.Contains(container.KernelMappings[0].ContainerImage, ":1.0-${KERNEL_FULL_VERSION}") {
			t.Errorf("%s: %+v", m.Name, m.Spec)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d copies", len(all))
	}
}

func TestGrowth(t *testing.T) {
	slow := result{Nodes: 5000, Modules: 1, ReactionP99Seconds: 1.2, Load: measure.Use{CPUSeconds: map[string]float64{"operator": 30}}}
	waits := slow
	waits.FloorReactionP99Seconds = 2
	of := func(nodes int, seconds float64) result {
		return result{Nodes: nodes, Modules: 1, Load: measure.Use{CPUSeconds: map[string]float64{"operator": seconds}}}
	}
	cases := map[string]struct {
		results []result
		ratio   float64
		wrong   string
	}{
		"linear":               {results: []result{of(500, 3), of(5000, 30)}, ratio: 1},
		"with more Modules":    {results: []result{of(500, 3), {Nodes: 5000, Modules: 20, Load: of(5000, 900).Load}, of(5000, 30)}, ratio: 1},
		"the other way round":  {results: []result{of(5000, 30), of(500, 3)}, ratio: 1},
		"quadratic":            {results: []result{of(500, 3), of(2000, 30), of(5000, 300)}, ratio: 10, wrong: "10.00 is above 1.3"},
		"slow to react":        {results: []result{of(500, 3), slow}, ratio: 1, wrong: "5000 nodes: reactionP99Seconds 1.20 is not below 1"},
		"a slow control plane": {results: []result{of(500, 3), waits}, ratio: 1, wrong: "is not below 1 (a bare client: 2.00)"},
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
			if err := g.print(&table); err != nil || strings.Count(table.String(), "\n") != 1+len(c.results) ||
				!strings.Contains(table.String(), "–") {
				t.Errorf("%v, table:\n%s", err, table.String())
			}
		})
	}
}

// full is the result of a fleet with each figure of the charts.
func full(nodes int, seconds float64) result {
	return result{
		Nodes: nodes, Modules: 1, Seconds: seconds, FloorSeconds: seconds, WritesPerNode: 6, OperatorRSSMiB: seconds, EtcdMiB: seconds,
		Load: measure.Use{CPUSeconds: map[string]float64{"operator": seconds / 5}},
	}
}

func TestSizeIsTold(t *testing.T) {
	if text := (size{1, 1}).String(); text != "1 node, 1 Module" {
		t.Errorf("a size is told as %q", text)
	}
}

// TestChart: each figure has a panel, and each size a mark in it that lies within the panel.
func TestChart(t *testing.T) {
	g := compare([]result{
		full(500, 10), full(5000, 100),
		{Nodes: 500, Modules: 5, Seconds: 50}, // without a floor
	})
	var out strings.Builder
	if err := g.chart(&out); err != nil {
		t.Fatal(err)
	}
	var read struct {
		Panels []struct {
			Title string `xml:"text"`
			Marks []struct {
				X int `xml:"cx,attr"`
				Y int `xml:"cy,attr"`
			} `xml:"circle"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal([]byte(out.String()), &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Panels) != len(panels) {
		t.Fatalf("%d panels:\n%s", len(read.Panels), &out)
	}
	for i, p := range read.Panels {
		if want := map[bool]int{true: 3, false: 2}[i == 0]; len(p.Marks) != want {
			t.Errorf("%s: marks %v", panels[i].title, p.Marks)
		}
		for _, m := range p.Marks {
			if m.X < plotLeft || m.X > plotLeft+plotWidth || m.Y < plotTop || m.Y > plotTop+plotHeight {
				t.Errorf("%s: %v lies outside", panels[i].title, m)
			}
		}
	}
	if seconds := read.Panels[0].Marks; seconds[0].Y != plotTop+plotHeight-plotHeight/10 || seconds[1].Y != plotTop {
		t.Errorf("seconds are drawn at %v", seconds)
	}
}
