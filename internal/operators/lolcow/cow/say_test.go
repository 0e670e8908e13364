// SPDX-License-Identifier: Apache-2.0

package cow

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rivo/uniseg"
)

func TestCowSaysItInABalloon(t *testing.T) {
	for given, c := range map[string]struct{ text, balloon string }{
		"one line": {"Oh my", `
 _______
< Oh my >
 -------
`},
		"what a shell or an option parser would take for its own": {"-n * $HOME $(x)", `
 _________________
< -n * $HOME $(x) >
 -----------------
`},
		"nothing": {"", `
 __
<  >
 --
`},
		"two lines, and a tab": {"first\n\tsecond\n", `
 ____________
/ first      \
\     second /
 ------------
`},
		"a long text": {"A long text is broken between its words, where Unicode allows it, and fills three lines.", `
 __________________________________________
/ A long text is broken between its words, \
| where Unicode allows it, and fills three |
\ lines.                                   /
 ------------------------------------------
`},
		"a word that fits on no line": {"x " + strings.Repeat("y", 45), `
 __________________________________________
/ x                                        \
| yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy |
\ yyyyy                                    /
 ------------------------------------------
`},
		"characters of two columns, combined ones, and a family": {"牛 e\u0301 👩‍👩‍👧‍👦\nabcdefg", "\n" +
			" _________\n" +
			"/ 牛 e\u0301 👩‍👩‍👧‍👦 \\\n" +
			"\\ abcdefg /\n" +
			" ---------\n"},
		"an escape sequence, and marks that turn the direction": {"\x1b[31mred\u202e\a", `
 ___________
< �[31mred� >
 -----------
`},
	} {
		balloon, _, found := strings.Cut(Say(c.text), cow)
		if !found {
			t.Errorf("%s: no cow in\n%s", given, Say(c.text))
		}
		want := strings.TrimPrefix(c.balloon, "\n")
		if diff := cmp.Diff(want, balloon); diff != "" {
			t.Errorf("%s (-want +got):\n%s", given, diff)
		}
	}
}

// TestBalloonsAreStraight: whatever is said, all lines of a balloon have the same number of
// columns, and no text is lost.
func TestBalloonsAreStraight(t *testing.T) {
	pieces := []string{"moo", "牛", "👩‍👩‍👧‍👦", "e\u0301", "-", "🇨🇭", strings.Repeat("long", 30), strings.Repeat("草", 70), "    indented",
		"\u200bzero", "ﷺ", "שלום"}
	for i := range 400 {
		var words []string
		for j := range 1 + i%17 {
			words = append(words, pieces[(i*7+j*(1+i%5))%len(pieces)])
		}
		text := strings.Join(words, " ")
		balloon, _, _ := strings.Cut(Say(text), cow)
		lines := strings.Split(strings.TrimSuffix(balloon, "\n"), "\n")
		width := uniseg.StringWidth(lines[1])
		if width > balloonWidth+4 {
			t.Errorf("%q has %d columns", lines[1], width)
		}
		var inside strings.Builder
		for _, line := range lines[1 : len(lines)-1] {
			if uniseg.StringWidth(line) != width {
				t.Errorf("%q has %d columns instead of %d", line, uniseg.StringWidth(line), width)
			}
			inside.WriteString(line[2 : len(line)-2])
		}
		if letters(inside.String()) != letters(text) {
			t.Errorf("%q became\n%s", text, balloon)
		}
	}
}

// letters leaves out the spaces: lines are padded with them, and broken at them.
func letters(text string) string { return strings.ReplaceAll(text, " ", "") }
