// SPDX-License-Identifier: Apache-2.0

package words_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/drover-project/drover/internal/shared/words"
)

func TestClean(t *testing.T) {
	for given, want := range map[string]string{
		"":                               "",
		"modprobe: no such device (-19)": "modprobe: no such device (-19)",
		"é, 漢字 and … stay":               "é, 漢字 and … stay",
		"first\nsecond":                  "first\nsecond",
		"a\tb\u00a0c":                    "a b c",
		"over\rwritten":                  "over written",
		"a\x1b[2Jb":                      "a?[2Jb",
		"\x1b]0;title\x07":               "?]0;title?",
		"\u009b31mred":                   "?31mred",         // C1: a CSI of one character
		"gpj.exe\u202eexe.jpg":           "gpj.exe?exe.jpg", // shown from right to left
		"a\u2066b\u2069":                 "a?b?",            // isolates
		"adm\u200bin\ufeff":              "adm?in?",         // without width
		"a\u2028b\u0085c":                "a?b?c",           // other line breaks
		"a\xffb":                         "a?b",             // no UTF-8
		"\U000e0041tag":                  "?tag",            // invisible tags
		"nul\x00del\x7fbell\a":           "nul?del?bell?",
		"private \ue000":                 "private ?",
	} {
		if got := words.Clean(given); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	for given, want := range map[string]string{"": "", " a \r\n b\t": "a b", "a\x1b[2J\nb": "a?[2J b"} {
		if got := words.Line(given); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}

// FuzzClean: what comes out steers nothing, is no longer, and stays when it is cleaned again; and
// so do texts that are cut.
func FuzzClean(f *testing.F) {
	for _, text := range []string{"", "plain", "\x1b[2J", "é漢\u202e", "\xff\xfe", "a\r\nb", "\u009b", strings.Repeat("é\x00", 40)} {
		f.Add(text, 7)
	}
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(0, min(most, 1<<12))
		cleaned := words.Clean(text)
		if len(cleaned) > len(text) || words.Clean(cleaned) != cleaned {
			t.Errorf("%q becomes %q", text, cleaned)
		}
		for what, got := range map[string]string{
			"Clean": cleaned, "Line": words.Line(text), "Cut": words.Cut(text, most), "Fit": words.Fit(text, most), "Clip": words.Clip(text, most),
		} {
			steers := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
			if !utf8.ValidString(got) || strings.ContainsFunc(got, steers) || what == "Line" && strings.Contains(got, "\n") {
				t.Errorf("%s: %q becomes %q", what, text, got)
			}
		}
	})
}

func TestWriter(t *testing.T) {
	var b strings.Builder
	if n, err := words.Writer(&b).Write([]byte("I0101 \x1b[2J\nnext\n")); n != 16 || err != nil || b.String() != "I0101 ?[2J\nnext\n" {
		t.Errorf("%q, %d, %v", b.String(), n, err)
	}
}
