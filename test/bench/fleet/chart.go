// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// panel is one small chart: a figure against the number of nodes.
type panel struct {
	title string
	of    func(*result) float64
}

var panels = []panel{
	{"seconds", func(r *result) float64 { return r.Seconds }},
	{"floor, seconds", func(r *result) float64 { return r.FloorSeconds }},
	{"writes per node", func(r *result) float64 { return r.WritesPerNode }},
	{"operator, CPU ms per node", func(r *result) float64 { return r.cpuPerNode() }},
	{"operator, MiB", func(r *result) float64 { return r.OperatorRSSMiB }},
	{"etcd, MiB", func(r *result) float64 { return r.EtcdMiB }},
}

// The sizes of a panel's parts, in pixels.
const (
	panelWidth, panelHeight = 240, 180
	plotWidth, plotHeight   = 190, 110
	plotLeft, plotTop       = 10, 40
	columns                 = 3
)

// saveChart writes the charts of a growth as an SVG.
func (g *growth) saveChart(path string) error {
	var chart strings.Builder
	if err := g.chart(&chart); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(chart.String()), 0o644); err != nil { //nolint:gosec // it is for all to see
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// chart draws each panel from zero, so that a line through the origin is one that grows with the
// nodes, and a level one is one that does not.
func (g *growth) chart(out io.Writer) error {
	rows := (len(panels) + columns - 1) / columns
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n",
		columns*panelWidth, rows*panelHeight)
	svg.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, p := range panels {
		fmt.Fprintf(&svg, `<g transform="translate(%d %d)">`+"\n", i%columns*panelWidth, i/columns*panelHeight)
		p.draw(&svg, g.Sizes)
		svg.WriteString("</g>\n")
	}
	svg.WriteString("</svg>\n")
	_, err := io.WriteString(out, svg.String())
	return err
}

// colours of the lines, one for each number of Modules.
var colours = []string{"#1a5fb4", "#a51d2d", "#26a269", "#613583"}

func (p panel) draw(svg *strings.Builder, sizes []result) {
	most, widest := 0.0, 0
	lines := map[int][]*result{} // by the number of Modules
	for i := range sizes {
		r := &sizes[i]
		most, widest = max(most, p.of(r)), max(widest, r.Nodes)
		lines[r.Modules] = append(lines[r.Modules], r)
	}
	bottom := plotTop + plotHeight
	fmt.Fprintf(svg, `<text x="%d" y="20" font-weight="bold">%s</text>`+"\n", plotLeft, p.title)
	fmt.Fprintf(svg, `<path d="M%d %dV%dH%d" fill="none" stroke="#888"/>`+"\n", plotLeft, plotTop, bottom, plotLeft+plotWidth)
	for i, modules := range slices.Sorted(maps.Keys(lines)) {
		var points, marks strings.Builder
		colour := colours[i%len(colours)]
		for _, r := range lines[modules] {
			if p.of(r) == 0 {
				continue // several Modules have no floor
			}
			x, y := plotLeft+plotWidth*r.Nodes/widest, bottom
			if most > 0 {
				y -= int(plotHeight * p.of(r) / most)
			}
			fmt.Fprintf(&points, "%d,%d ", x, y)
			fmt.Fprintf(&marks, `<circle cx="%d" cy="%d" r="3" fill="%s"><title>%s</title></circle>`, x, y, colour,
				size{nodes: r.Nodes, modules: modules})
			fmt.Fprintf(&marks, `<text x="%d" y="%d" text-anchor="middle" fill="%s">%.4g</text>`, x, y-6, colour, p.of(r))
			fmt.Fprintf(&marks, `<text x="%d" y="%d" text-anchor="middle" fill="#555">%d</text>`+"\n", x, bottom+14, r.Nodes)
		}
		fmt.Fprintf(svg, `<polyline points="%s" fill="none" stroke="%s"/>`+"\n%s", strings.TrimSpace(points.String()), colour, marks.String())
	}
}
