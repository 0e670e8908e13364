// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"unicode"
)

// special are the characters that mean something in Markdown or in a template of the site.
var special = strings.NewReplacer(
	`\`, `\\`, `*`, `\*`, `_`, `\_`, `[`, `\[`, `]`, `\]`, `<`, `&lt;`, `>`, `&gt;`, `|`, `\|`, `{{`, `&#123;&#123;`, `}}`, `&#125;&#125;`,
)

// text is a description in one line of Markdown: words as they are, code in backquotes as it was.
func text(s string) string {
	parts := strings.Split(strings.Join(strings.Fields(s), " "), "`")
	if len(parts)%2 == 0 {
		return strings.ReplaceAll(special.Replace(strings.Join(parts, "`")), "`", "\\`")
	}
	var b strings.Builder
	for i, part := range parts {
		switch {
		case i%2 == 0:
			b.WriteString(special.Replace(part))
		case part != "":
			b.WriteString(code(part))
		}
	}
	return b.String()
}

// code is a value in backquotes, in a cell of a table.
func code(s string) string {
	s = strings.ReplaceAll(s, "|", `\|`)
	switch {
	case s == "":
		return "` `"
	case strings.Contains(s, "`"):
		return "`` " + s + " ``"
	}
	return "`" + s + "`"
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor is what a heading is called in links.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// width of the lines of a paragraph.
const width = 100

// wrap breaks a paragraph into lines.
func wrap(paragraph string) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.FieldsFunc(paragraph, unicode.IsSpace) {
		switch n := len([]rune(word)); {
		case i == 0:
			length = n
		case length+1+n > width:
			b.WriteString("\n")
			length = n
		default:
			b.WriteString(" ")
			length += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}
