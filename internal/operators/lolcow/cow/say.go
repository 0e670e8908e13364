// SPDX-License-Identifier: Apache-2.0

package cow

import (
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
)

// balloonWidth is the number of columns of text in a balloon: with its frame and the margin of a
// log line it fits in 80.
const balloonWidth = 40

// cow stands below each balloon.
const cow = `    \
     \   __(  )__
         '-|oo|-'________
           |  |   ##     |\
           (..)_____###__| \
              ||      ||    *
              ^^      ^^
`

// Say returns text in a balloon, said by a cow, as lines for a terminal. Columns are counted as
// terminals do: an East Asian character or an emoji has two. Characters that would steer the
// terminal are not passed on.
func Say(text string) string {
	lines := wrap(printable(text), balloonWidth)
	width := 0
	for _, line := range lines {
		width = max(width, uniseg.StringWidth(line))
	}
	var b strings.Builder
	b.WriteString(" " + strings.Repeat("_", width+2) + "\n")
	for i, line := range lines {
		left, right := frame(i, len(lines))
		b.WriteString(left + " " + line + strings.Repeat(" ", width-uniseg.StringWidth(line)) + " " + right + "\n")
	}
	b.WriteString(" " + strings.Repeat("-", width+2) + "\n")
	b.WriteString(cow)
	return b.String()
}

// frame is what stands left and right of line i of n.
func frame(i, n int) (left, right string) {
	switch {
	case n == 1:
		return "<", ">"
	case i == 0:
		return "/", `\`
	case i == n-1:
		return `\`, "/"
	default:
		return "|", "|"
	}
}

// lineEnds are all that Unicode has for the end of a line, as one.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n", "\t",
	"    ")

// printable returns text as lines that a terminal only prints: escape sequences are made visible,
// and marks that turn the direction of writing are left out.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case unicode.Is(unicode.Bidi_Control, r):
			return -1
		case unicode.IsControl(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, lineEnds.Replace(text))
}

// wrap breaks text where Unicode allows a line to end (UAX #14), and words that are longer than a
// line between characters. It returns at least one line.
func wrap(text string, width int) []string {
	var lines []string
	for paragraph := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		lines = append(lines, fill(paragraph, width)...)
	}
	return lines
}

func fill(paragraph string, width int) []string {
	var lines []string
	line, state, piece := "", -1, ""
	for rest := paragraph; rest != ""; {
		piece, rest, _, state = uniseg.FirstLineSegmentInString(rest, state)
		if columns(line+piece) <= width {
			line += piece
			continue
		}
		if columns(line) > 0 {
			lines = append(lines, trim(line))
		}
		for line = piece; columns(line) > width; {
			head, tail := cut(line, width)
			lines, line = append(lines, head), tail
		}
	}
	if line != "" || len(lines) == 0 {
		lines = append(lines, trim(line))
	}
	return lines
}

// trim leaves out the spaces at the end of a line.
func trim(line string) string { return strings.TrimRight(line, " ") }

// columns counts those of a line without the spaces at its end, which may hang over.
func columns(line string) int { return uniseg.StringWidth(trim(line)) }

// cut splits a word after as many whole characters as fit, at least one.
func cut(word string, width int) (head, tail string) {
	used, state := 0, -1
	for rest := word; rest != ""; {
		_, after, w, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if used+w > width && used > 0 {
			return word[:len(word)-len(rest)], rest
		}
		used, rest, state = used+w, after, next
	}
	return word, ""
}
