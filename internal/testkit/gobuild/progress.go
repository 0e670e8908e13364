// SPDX-License-Identifier: Apache-2.0

package gobuild

import (
	"fmt"
	"strings"
)

// progress is what the go command has told of its work.
type progress struct {
	// modules and packages are all there are, of which the caches may hold some; 0: unknown.
	modules, packages int
	// fetched and compiled are how many of them were begun, module and pkg the latest.
	fetched, compiled int
	module, pkg       string
	// other is what else was said: what is wrong.
	other []string
}

// take reads a line. `go build -v` prints the path of each package that it compiles.
func (p *progress) take(line string) {
	module, found := strings.CutPrefix(line, "go: downloading ")
	switch {
	case found:
		p.fetched++
		p.module = module
	case !strings.ContainsAny(line, " \t:"):
		p.compiled++
		p.pkg = line
	default:
		p.other = append(p.other, line)
	}
}

// String says what is done, and how much is left.
func (p *progress) String() string {
	switch {
	case p.compiled > 0 && p.packages > 0:
		return fmt.Sprintf("%d packages compiled, at most %d left (%s)", p.compiled, max(p.packages-p.compiled, 0), p.pkg)
	case p.compiled > 0:
		return fmt.Sprintf("%d packages compiled (%s)", p.compiled, p.pkg)
	case p.fetched > 0:
		return fmt.Sprintf("%d modules loaded, at most %d left (%s)", p.fetched, max(p.modules-p.fetched, 0), p.module)
	default:
		return fmt.Sprintf("looking for what has changed, or linking (%d modules)", p.modules)
	}
}
