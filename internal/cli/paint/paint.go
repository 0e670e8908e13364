// SPDX-License-Identifier: Apache-2.0

// Package paint colours words on a terminal, and nowhere else.
package paint

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Painter colours, or returns words as they are. The zero value does not colour.
type Painter struct{ on bool }

// For is the painter for a stream: it colours on a terminal, unless NO_COLOR is set to anything or TERM is dumb.
func For(out io.Writer) Painter { return Painter{on: Terminal(out) && wanted(os.Getenv)} }

func wanted(env func(string) string) bool { return env("NO_COLOR") == "" && env("TERM") != "dumb" }

// Terminal reports whether somebody looks at the stream.
func Terminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Good is for what is as it shall be.
func (p Painter) Good(text string) string { return p.in("32", text) }

// Slow is for what needs patience.
func (p Painter) Slow(text string) string { return p.in("33", text) }

// Bad is for what needs somebody's attention.
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
