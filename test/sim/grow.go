// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-project/drover/test/sim/history"
	"github.com/drover-project/drover/test/sim/limits"
	"github.com/drover-project/drover/test/sim/world"
)

// rare is what a state is that at most so many histories in a hundred meet.
const rare = 3

// grow adds the beginnings of histories that lead to rare states to the corpus.
func (s *summary) grow(o *options) error {
	corpus, err := history.Corpus()
	if err != nil {
		return err
	}
	lines := make([]string, 0, len(corpus))
	for _, events := range corpus {
		lines = append(lines, history.Text(events))
	}
	longest := map[uint64]int{}
	for state, b := range s.seen {
		if s.met[state]*100 <= rare*s.Histories {
			longest[b.seed] = max(longest[b.seed], b.events)
		}
	}
	for seed, n := range longest {
		if n > 0 {
			lines = append(lines, history.Text(limits.Begin(seed, history.Generate(seed, o.length, world.Verbs(), corpus))[:n]))
		}
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	file := filepath.Join(o.root, "test/sim/history/corpus.txt")
	fmt.Printf("The corpus has %d histories: %s\n", len(lines), file)
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644) //nolint:gosec // a source
}
