// SPDX-License-Identifier: Apache-2.0

package host

import (
	"regexp"
	"strings"
)

const (
	maxLogLines = 10
	maxLogBytes = 1024
)

var (
	// logPrefix is what syslog(2) puts before a line: level, time and, on some kernels, the caller.
	logPrefix = regexp.MustCompile(`^(<\d+>)?(\[ *\d+\.\d+\] ?)?(\[ *[TC]\d+\] ?)?`)
	// address is a pointer, or what the kernel prints in its place.
	address = regexp.MustCompile(`\b(0x)?[0-9a-f]{16}\b|\(____ptrval____\)`)
)

// newText is what was logged after before. The buffer may have wrapped in between.
func newText(before, after string) string {
	if last := lastLine(before); last != "" {
		if i := strings.LastIndex(after, last); i >= 0 {
			return after[i+len(last):]
		}
	}
	return after
}

// newLines are the last lines of newText without what differs each time: timestamps, addresses.
func newLines(before, after string) []string {
	var lines []string
	for line := range strings.Lines(newText(before, after)) {
		line = strings.TrimRight(line, "\n")
		line = line[len(logPrefix.FindString(line)):]
		line = address.ReplaceAllString(strings.ToValidUTF8(line, "?"), "<address>")
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) > maxLogLines {
		lines = lines[len(lines)-maxLogLines:]
	}
	for len(lines) > 0 && len(strings.Join(lines, "\n")) > maxLogBytes {
		lines = lines[1:]
	}
	return lines
}

// lastLine is a log's last line with its timestamp, which makes it unique.
func lastLine(log string) string {
	log = strings.TrimRight(log, "\n")
	if log == "" {
		return ""
	}
	return log[strings.LastIndex(log, "\n")+1:] + "\n"
}
