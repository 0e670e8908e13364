// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/drover-project/drover/internal/shared/words"
)

// maxCPUGrowth is how many times as much of the operator's CPU time a node of the largest fleet may
// take as one of the smallest. Above 1 means that a node costs more the more there are.
const maxCPUGrowth = 1.3

// maxReaction is within how many seconds the operator writes what a node's report asks for, of 99
// nodes of 100, while the whole fleet loads.
const maxReaction = 1.0

// growth compares fleets of several sizes.
type growth struct {
	// Sizes are the results, the fewest Modules and the smallest fleet first.
	Sizes []result `json:"sizes"`
	// OperatorCPUPerNodeRatio is the operator's CPU time per node during the load of the largest
	// fleet to that of the smallest.
	OperatorCPUPerNodeRatio float64 `json:"operatorCPUPerNodeRatio"`
}

// size of a fleet.
type size struct{ nodes, modules int }

func (s size) String() string {
	return words.Count(s.nodes, "node") + ", " + words.Count(s.modules, "Module")
}

// parseSizes reads numbers of nodes and of Modules, such as "500,2000,5000" and "1,5", and sorts
// their combinations.
func parseSizes(nodes, modules string) ([]size, error) {
	all, err := parseNumbers("nodes", nodes)
	if err != nil {
		return nil, err
	}
	each, err := parseNumbers("modules", modules)
	if err != nil {
		return nil, err
	}
	var sizes []size
	for _, n := range all {
		for _, m := range each {
			sizes = append(sizes, size{nodes: n, modules: m})
		}
	}
	return sizes, nil
}

func parseNumbers(flag, text string) ([]int, error) {
	var numbers []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--%s is %q: give numbers, such as 5 or 1,5,20", flag, text)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

// compare takes results of at least two sizes. The ratio is of fleets with the fewest Modules.
func compare(results []result) growth {
	slices.SortFunc(results, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.Modules, b.Modules), cmp.Compare(a.Nodes, b.Nodes))
	})
	first := results[0]
	last := first
	for i := range results {
		if results[i].Modules == first.Modules {
			last = results[i]
		}
	}
	return growth{Sizes: results, OperatorCPUPerNodeRatio: math.Round(100*last.cpuPerNode()/first.cpuPerNode()) / 100}
}

// cpuPerNode is what the operator takes for a node during the load, in milliseconds.
func (r *result) cpuPerNode() float64 { return 1000 * r.Load.CPUSeconds["operator"] / float64(r.Nodes) }

func (g *growth) wrong() error {
	var errs []error
	// Without /proc there are no CPU times, and the ratio is NaN.
	if ratio := g.OperatorCPUPerNodeRatio; ratio > maxCPUGrowth || math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		errs = append(errs, fmt.Errorf("operatorCPUPerNodeRatio %.2f is above %.1f", ratio, maxCPUGrowth))
	}
	for i := range g.Sizes {
		if r := &g.Sizes[i]; r.ReactionP99Seconds >= maxReaction {
			errs = append(errs, fmt.Errorf("%d nodes: reactionP99Seconds %.2f is not below %.0f (a bare client: %.2f)",
				r.Nodes, r.ReactionP99Seconds, maxReaction, r.FloorReactionP99Seconds))
		}
	}
	return errors.Join(errs...)
}

// measured is a figure, or a dash where there is none: several Modules have no floor.
func measured(format string, figure float64) string {
	if figure == 0 {
		return "–"
	}
	return fmt.Sprintf(format, figure)
}

// print writes a table of what changes with the size of a fleet.
func (g *growth) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, err := fmt.Fprintln(w, "nodes\tModules\tseconds\tfloor\tratio\twrites/node\tModule writes\toperator ms/node\toperator MiB"+
		"\treaction s\tits floor\tAPI server s\tetcd MiB\t")
	errs := []error{err}
	for i := range g.Sizes {
		r := &g.Sizes[i]
		_, err := fmt.Fprintf(w, "%d\t%d\t%.1f\t%s\t%s\t%.2f\t%d\t%.1f\t%.0f\t%s\t%s\t%.0f\t%.0f\t\n", r.Nodes, r.Modules, r.Seconds,
			measured("%.1f", r.FloorSeconds), measured("%.2f", r.RatioToFloor), r.WritesPerNode, r.ModuleWrites, r.cpuPerNode(),
			r.OperatorRSSMiB, measured("%.2f", r.ReactionP99Seconds), measured("%.2f", r.FloorReactionP99Seconds),
			r.Load.CPUSeconds["kube-apiserver"], r.EtcdMiB)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, w.Flush())...)
}
