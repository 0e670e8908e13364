// SPDX-License-Identifier: Apache-2.0

package status

import (
	"regexp"
	"strings"
)

// Saying is what a condition's message says of one node.
type Saying struct {
	Name    string
	Message string
}

var (
	nextCohort = regexp.MustCompile(`; [A-Z]\w+ on `)
	moreNodes  = regexp.MustCompile(` and \d+ more$`)
)

// Telling reads from the message of a condition of this package which nodes it names for a reason, and what it says of them; more: there are
// nodes that it does not name. It is for what no object but the Module shows.
func Telling(message, reason string) (told []Saying, more bool) {
	_, rest, found := strings.Cut("; "+message, "; "+reason+" on ")
	if !found {
		return nil, false
	}
	if end := nextCohort.FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	names, text, _ := strings.Cut(rest, ": ")
	if all := moreNodes.FindString(names); all != "" {
		names, more = strings.TrimSuffix(names, all), true
	}
	for _, name := range strings.Split(names, ", ") {
		told = append(told, Saying{Name: name, Message: text})
	}
	return told, more
}
