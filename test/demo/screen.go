// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
)

// screen shows views: a table drawn over itself on a terminal, one line per change elsewhere.
type screen struct {
	out      io.Writer
	terminal bool
	drawn    int
	said     map[string]string
}

func newScreen(out io.Writer, terminal bool) *screen {
	return &screen{out: out, terminal: terminal, said: map[string]string{}}
}

func (s *screen) show(v view) {
	if s.terminal {
		s.draw(table(v))
		return
	}
	for _, n := range v.nodes {
		s.once(n.name, fmt.Sprintf("%-10s %-22s %s", n.name, n.kernel, n.note))
	}
	s.once("module", fmt.Sprintf("module %s/%s: %s", namespace, moduleName, v.message))
}

// problem shows why the cluster could not be looked at.
func (s *screen) problem(err error) {
	if !s.terminal {
		s.once("problem", err.Error())
	}
}

func (s *screen) once(key, line string) {
	if s.said[key] != line {
		s.said[key] = line
		fmt.Fprintln(s.out, line)
	}
}

func (s *screen) draw(lines []string) {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\033[%dA", s.drawn)
	}
	for _, l := range lines {
		fmt.Fprintf(s.out, "\033[2K%s\n", l)
	}
	s.drawn = len(lines)
}

// table renders a view.
func table(v view) []string {
	lines := []string{fmt.Sprintf("%-10s %-22s %-7s %-6s %-7s %s", "NODE", "KERNEL", "LOADED", "READY", "PLUGIN", "STATE")}
	for _, n := range v.nodes {
		lines = append(lines, fmt.Sprintf("%-10s %-22s %-7s %-6s %-7s %s", n.name, n.kernel, tick(n.live), tick(n.label), tick(n.plugin), n.note))
	}
	message := v.message
	if len(message) > 100 {
		message = message[:100] + "…"
	}
	return append(lines, strings.Repeat("-", 70), fmt.Sprintf("module %s/%s: %s", namespace, moduleName, message))
}

func tick(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}
