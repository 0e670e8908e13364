// SPDX-License-Identifier: Apache-2.0

package page

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// elided are lines of an excerpt that stand for any number of lines of the source.
var elided = []string{"…", "// …", "# …"}

// CheckExcerpt says whether an excerpt stands in a source, line by line in order, blanks at the
// ends of lines and empty lines aside. A line with nothing but … (as a comment, if the language
// wants one) leaves lines out.
func CheckExcerpt(excerpt, source string) error {
	have := meaningful(source)
	from, part, found := 0, []string(nil), false
	flush := func() error {
		if len(part) == 0 {
			return nil
		}
		at := find(have[from:], part)
		if at < 0 {
			return fmt.Errorf("the source does not have these lines, one after another: %s", strings.Join(part, " ⏎ "))
		}
		from, part, found = from+at+len(part), nil, true
		return nil
	}
	for _, line := range meaningful(excerpt) {
		if !slices.Contains(elided, line) {
			part = append(part, line)
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if !found {
		return errors.New("nothing is shown")
	}
	return nil
}

func meaningful(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func find(have, want []string) int {
	for i := 0; i+len(want) <= len(have); i++ {
		if slices.Equal(have[i:i+len(want)], want) {
			return i
		}
	}
	return -1
}
