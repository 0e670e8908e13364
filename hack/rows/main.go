// SPDX-License-Identifier: Apache-2.0

// Command rows joins the table of requirements (test/rows.tsv) with the results of `go test -json`
// and says, section by section, what is proved and what is missing.
//
// A row is: ID, state, proof. The state is done, open or superseded. The proof of a done row is one
// or more tests ("test:TestName" or "test:TestName/sub"), documents or files ("file:docs/x.md") or
// commands that .ci/run or `make proofs` runs ("ci:make target"); of a superseded row the decision
// ("A-15"); of an open row the milestone that brings it.
//
// Exit status 1: a done row without a passing test, a file that does not exist, or a malformed
// line.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

type row struct {
	id, state string
	proofs    []string
}

var (
	idPattern = regexp.MustCompile(`^(HE|KM|PT|LC|UK)-B?\d+[a-z]?$`)
	decision  = regexp.MustCompile(`^A-\d\d$`)
	milestone = regexp.MustCompile(`^M\d+$`)
)

var sections = []struct{ prefix, title string }{
	{"HE", "DeviceConfig operator"},
	{"KM", "Module operator"},
	{"PT", "Ptemplate operator"},
	{"LC", "Lolcow operator"},
	{"UK", "Authoring guide"},
}

func main() {
	table := flag.String("table", "test/rows.tsv", "table of requirements")
	results := flag.String("results", "", "output of go test -json; empty: tests are not checked")
	makefile := flag.String("makefile", "Makefile", "Makefile whose targets ci: proofs name")
	flag.Parse()
	problems, err := run(os.Stdout, *table, *results, *makefile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rows:", err)
		os.Exit(2)
	}
	if problems > 0 {
		os.Exit(1)
	}
}

func run(out io.Writer, table, results, makefile string) (int, error) {
	rows, err := readRows(table)
	if err != nil {
		return 0, err
	}
	passed, err := readResults(results)
	if err != nil {
		return 0, err
	}
	mk, err := os.ReadFile(makefile)
	if err != nil {
		return 0, err
	}
	c := checker{passed: passed, makefile: string(mk)}
	done, problems := 0, 0
	for _, s := range sections {
		d, p := c.section(out, s.prefix, s.title, rows)
		done, problems = done+d, problems+p
	}
	result, err := json.Marshal(map[string]any{"rows": len(rows), "done": done, "problems": problems, "testsChecked": passed != nil})
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "RESULT %s\n", result)
	return problems, nil
}

func readRows(path string) ([]row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var rows []row
	seen := map[string]bool{}
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cols := strings.Split(line, "\t")
		if len(cols) != 3 || !idPattern.MatchString(cols[0]) || seen[cols[0]] {
			return nil, fmt.Errorf("%s:%d: want one tab-separated line per ID: ID, state, proof", path, n)
		}
		seen[cols[0]] = true
		rows = append(rows, row{id: cols[0], state: cols[1], proofs: strings.Fields(cols[2])})
	}
	return rows, sc.Err()
}

// readResults returns the outcome of each test by its name, nil when no file is given.
func readResults(path string) (map[string]bool, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	passed := map[string]bool{}
	dec := json.NewDecoder(f)
	for {
		var e struct{ Action, Test string }
		if err := dec.Decode(&e); err == io.EOF {
			return passed, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s is not the output of go test -json: %w", path, err)
		}
		switch {
		case e.Test == "":
		case e.Action == "pass":
			if _, failedBefore := passed[e.Test]; !failedBefore {
				passed[e.Test] = true
			}
		case e.Action == "fail" || e.Action == "skip":
			passed[e.Test] = false
		}
	}
}

type checker struct {
	passed   map[string]bool
	makefile string
}

func (c checker) section(out io.Writer, prefix, title string, rows []row) (done, problems int) {
	var open, superseded []string
	total := 0
	var broken []string
	for _, r := range rows {
		if !strings.HasPrefix(r.id, prefix+"-") {
			continue
		}
		total++
		if why := c.check(r); why != "" {
			broken = append(broken, r.id+": "+why)
			continue
		}
		switch r.state {
		case "done":
			done++
		case "open":
			open = append(open, r.id)
		default:
			superseded = append(superseded, r.id)
		}
	}
	sort.Strings(broken)
	fmt.Fprintf(out, "%s (%s): %d rows, %d done, %d superseded, %d open, %d broken\n", title, prefix, total, done, len(superseded), len(open),
		len(broken))
	if len(open) > 0 {
		fmt.Fprintf(out, "  missing: %s\n", strings.Join(open, " "))
	}
	for _, b := range broken {
		fmt.Fprintf(out, "  BROKEN %s\n", b)
	}
	return done, len(broken)
}

// check returns why a row is not what it says, or "".
func (c checker) check(r row) string {
	if len(r.proofs) == 0 {
		return "no proof given"
	}
	for _, p := range r.proofs {
		if why := c.proof(r.state, p); why != "" {
			return why
		}
	}
	return ""
}

func (c checker) proof(state, p string) string {
	kind, what, _ := strings.Cut(p, ":")
	switch {
	case state == "open" && milestone.MatchString(p):
	case state == "superseded" && decision.MatchString(p):
	case state == "done" && kind == "test":
		if c.passed == nil {
			return ""
		}
		if ok, ran := c.passed[what]; !ran {
			return "test " + what + " did not run"
		} else if !ok {
			return "test " + what + " did not pass"
		}
	case state == "done" && kind == "file":
		if _, err := os.Stat(filepath.FromSlash(what)); err != nil {
			return "file " + what + " is missing"
		}
	case state == "done" && kind == "ci":
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(what) + `\s*:`).MatchString(c.makefile) {
			return "the Makefile has no target " + what
		}
	default:
		return fmt.Sprintf("proof %q does not fit state %q", p, state)
	}
	return ""
}
