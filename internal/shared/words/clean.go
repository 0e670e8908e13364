// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes foreign text fit to be read: words of nodes, pods, registries, builds, images and
// other clusters, before they reach a terminal, a condition, an event, a log or a metric. What is
// no UTF-8, and what steers terminals or how text is shown (control characters, marks of direction,
// characters without width), becomes "?". Line breaks stay, and all other blanks become a space. It
// bounds no length: [Clip], [Cut] and [Fit] do both.
func Clean(text string) string {
	if clean(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r != utf8.RuneError && unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r) && r != '\u0085' && r != '\u2028' && r != '\u2029':
			return ' '
		}
		return '?'
	}, text)
}

// clean is the quick answer for what is nearly all text.
func clean(text string) bool {
	for i := range len(text) {
		if c := text[i]; c != '\n' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}

// Writer cleans what is written to out, as logs are: each call has whole characters.
func Writer(out io.Writer) io.Writer { return writer{out} }

type writer struct{ out io.Writer }

// Write implements io.Writer.
func (w writer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.out, Clean(string(text))); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	return len(text), nil
}

// Line is foreign text, cleaned, as one line: blanks and line breaks become one space.
func Line(text string) string { return strings.Join(strings.Fields(Clean(text)), " ") }
