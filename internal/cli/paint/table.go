// SPDX-License-Identifier: Apache-2.0

package paint

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table aligns columns, then colours column state: escape codes would break the alignment.
func Table(out io.Writer, state int, colour func(string) string, head []string, rows [][]string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, cells := range append([][]string{head}, rows...) {
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush()
	for i, line := range strings.Split(strings.TrimRight(b.String(), "\n"), "\n") {
		if i > 0 {
			word := rows[i-1][state]
			line = strings.Replace(line, " "+word+" ", " "+colour(word)+" ", 1)
		}
		_, _ = fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}
