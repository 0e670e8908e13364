// SPDX-License-Identifier: Apache-2.0

// Package paint colours words on a terminal.
package paint

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
)

// Painter colours words. The zero value returns them as they are.
type Painter struct{ on bool }

// For colours on a terminal, unless NO_COLOR is set or TERM is dumb.
func For(out io.Writer) Painter { return Painter{on: Terminal(out) && wanted(os.Getenv)} }

func wanted(env func(string) string) bool { return env("NO_COLOR") == "" && env("TERM") != "dumb" }

// Terminal reports whether the stream is a terminal.
func Terminal(out io.Writer) bool {
	file, ok := Raw(out).(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Good is for what is as it should be.
func (p Painter) Good(text string) string { return p.in("32", text) }

// Slow is for what needs patience.
func (p Painter) Slow(text string) string { return p.in("33", text) }

// Bad is for what needs attention.
func (p Painter) Bad(text string) string { return p.in("31", text) }

// Faint is for what does not matter here.
func (p Painter) Faint(text string) string { return p.in("2", text) }

// Strong is for the answer.
func (p Painter) Strong(text string) string { return p.in("1", text) }

func (p Painter) in(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

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
