// SPDX-License-Identifier: Apache-2.0

// Package words puts names and numbers into sentences.
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
