// SPDX-License-Identifier: Apache-2.0

package page

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// CheckOutput compares what a page says that a command prints with what it printed. Blanks count as
// one, so that columns may have any width; empty lines do not count. In a line, … stands for
// anything; a line with nothing but … stands for any lines.
func CheckOutput(want, got string) error {
	wanted, printed := meaningful(want), meaningful(got)
	if strings.Trim(squeeze(want), "… ") == "" {
		return errors.New("nothing is compared")
	}
	skip := false
	for _, line := range wanted {
		if line == "…" {
			skip = true
			continue
		}
		at := 0
		for skip && at < len(printed) && !matches(line, printed[at]) {
			at++
		}
		if at >= len(printed) {
			return fmt.Errorf("not printed: %s", line)
		}
		if !matches(line, printed[at]) {
			return fmt.Errorf("printed %q where the page has %q", printed[at], line)
		}
		printed, skip = printed[at+1:], false
	}
	if len(printed) > 0 && !skip {
		return fmt.Errorf("printed, and not on the page: %s", printed[0])
	}
	return nil
}

func matches(want, got string) bool {
	parts := strings.Split(squeeze(want), "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(squeeze(got))
}

func squeeze(line string) string { return strings.Join(strings.Fields(line), " ") }
