// SPDX-License-Identifier: Apache-2.0

// Package words puts names and numbers into sentences, and cleans what others have said.
package words

import (
	"fmt"
	"strings"
)

// List joins names, of which it says the first few: "a, b and 3 more".
func List(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Count is a number of things: "1 node", "2 nodes".
func Count(n int, noun string) string { return fmt.Sprintf("%d %s", n, Plural(n, noun)) }

// Plural is a noun for a number of things: "node", "nodes".
func Plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// Clip shortens a text to a number of bytes, and keeps both ends: who failed at what stands at the
// beginning, and why at the end. It cleans the text; see [Clean].
func Clip(text string, most int) string {
	text = Clean(text)
	if len(text) <= most {
		return text
	}
	head := most / 3
	return strings.ToValidUTF8(text[:head], "") + "…" + strings.ToValidUTF8(text[len(text)-(most-head):], "")
}

// Fit is what of a text fits into a number of bytes. It cleans the text; see [Clean].
func Fit(text string, most int) string {
	text = Clean(text)
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// Short is the beginning of an ID, enough to tell it from others.
func Short(id string) string { return id[:min(len(id), 12)] }

// Cut is text, or what fits of it into a number of bytes, and "…". It cleans the text; see [Clean].
func Cut(text string, most int) string {
	text = Clean(text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
