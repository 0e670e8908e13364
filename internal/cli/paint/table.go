// SPDX-License-Identifier: Apache-2.0

package paint

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// States that a table colours.
const (
	Ready   = "Ready"
	Waiting = "Waiting"
	Failed  = "Failed"
)

// Table aligns columns, then colours column state: escape codes would break the alignment. Cells
// without a head are left out.
func (p Painter) Table(out io.Writer, state int, head []string, rows [][]string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, cells := range append([][]string{head}, rows...) {
		_, _ = fmt.Fprintln(w, strings.Join(cells[:len(head)], "\t"))
	}
	_ = w.Flush()
	for i, line := range strings.Split(strings.TrimRight(b.String(), "\n"), "\n") {
		if i > 0 {
			word := rows[i-1][state]
			line = strings.Replace(line, " "+word+" ", " "+p.state(word)+" ", 1)
		}
		_, _ = fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}

func (p Painter) state(word string) string {
	switch word {
	case Ready:
		return p.Good(word)
	case Waiting:
		return p.Slow(word)
	}
	return p.Bad(word)
}
