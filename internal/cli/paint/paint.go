// SPDX-License-Identifier: Apache-2.0

// Package paint colours words on a terminal.
package paint

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Painter colours words. The zero value returns them as they are.
type Painter struct{ on bool }

// For colours on a terminal, unless NO_COLOR is set or TERM is dumb.
func For(out io.Writer) Painter { return Painter{on: Terminal(out) && wanted(os.Getenv)} }

func wanted(env func(string) string) bool { return env("NO_COLOR") == "" && env("TERM") != "dumb" }

// Terminal reports whether the stream is a terminal.
func Terminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Good is for what is as it should be.
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
