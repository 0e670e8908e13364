// SPDX-License-Identifier: Apache-2.0

// Command conformance runs test/conformance and joins its results with the table of numbers
// (test/conformance/numbers.tsv): what Drover owes to users and clients of Kernel Module
// Management, case by case.
//
// A line of the table is: number, state, what it is about. The state is one of
//
//	test                the case holds as it stands; a test of that number shows it
//	later Mn            milestone n delivers it
//	deviates docs/x.md  Drover decided otherwise, and that document says why in a row that begins with "| number |";
//	                    a test of that number shows what is owed instead, where something is
//
// Exit status 1: a test failed, a number of state test has none, or the numbers are not all there.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-project/drover/hack/gotest"
)

const (
	// cases is how many numbers there are.
	cases = 54

	stateTest     = "test"
	stateLater    = "later"
	stateDeviates = "deviates"
)

var (
	numbered  = regexp.MustCompile(`^TestConformance/([0-9]+)_[^/]*$`)
	milestone = regexp.MustCompile(`^M[0-9]+$`)
)

// number is one line of the table.
type number struct {
	n                    int
	state, detail, title string
}

// tally is how the tests of one number, or of none, ended.
type tally struct{ passed, failed, skipped int }

func main() {
	table := flag.String("table", "test/conformance/numbers.tsv", "table of numbers")
	pkg := flag.String("package", "./test/conformance", "package with the tests")
	only := flag.String("only", "", "run and judge these numbers only, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *table, *pkg, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, table, pkg, only string) error {
	content, err := os.ReadFile(table)
	if err != nil {
		return fmt.Errorf("read the table: %w", err)
	}
	numbers, err := parse(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	if only != "" {
		if numbers, err = choose(numbers, only); err != nil {
			return err
		}
	}
	results, runErr := test(ctx, out, pkg, only)
	return errors.Join(judge(out, numbers, results, only == ""), runErr)
}

func parse(table string) ([]number, error) {
	var numbers []number
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 || columns[2] == "" {
			return nil, fmt.Errorf("%q has not three columns", line)
		}
		n, err := strconv.Atoi(columns[0])
		if err != nil {
			return nil, fmt.Errorf("%q begins with no number: %w", line, err)
		}
		if len(numbers) > 0 && numbers[len(numbers)-1].n >= n {
			return nil, fmt.Errorf("%d stands after %d", n, numbers[len(numbers)-1].n)
		}
		state, detail, _ := strings.Cut(columns[1], " ")
		known := number{n: n, state: state, detail: detail, title: columns[2]}
		if err := known.check(); err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		numbers = append(numbers, known)
	}
	if len(numbers) != cases {
		return nil, fmt.Errorf("there are %d numbers, and should be %d", len(numbers), cases)
	}
	return numbers, nil
}

func (n number) check() error {
	switch {
	case n.state == stateTest && n.detail == "":
	case n.state == stateLater && milestone.MatchString(n.detail):
	case n.state == stateDeviates && n.detail != "":
		content, err := os.ReadFile(n.detail)
		if err != nil {
			return fmt.Errorf("the document with the reason: %w", err)
		}
		if !strings.Contains(string(content), fmt.Sprintf("\n| %d |", n.n)) {
			return fmt.Errorf("%s has no row for it", n.detail)
		}
	default:
		return fmt.Errorf("unknown state %q", strings.TrimSpace(n.state+" "+n.detail))
	}
	return nil
}

func choose(numbers []number, only string) ([]number, error) {
	var chosen []number
	for text := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(numbers, func(n number) bool { return strconv.Itoa(n.n) == text })
		if i < 0 {
			return nil, fmt.Errorf("there is no number %q", text)
		}
		chosen = append(chosen, numbers[i])
	}
	return chosen, nil
}

// test runs the tests and returns how those of each number ended; 0 is all others.
func test(ctx context.Context, out io.Writer, pkg, only string) (map[int]tally, error) {
	args := []string{"-count=1", "-timeout", "20m", "-parallel", "16"}
	if only != "" {
		args = append(args, "-run", "^TestConformance$/^("+strings.ReplaceAll(only, ",", "|")+")_")
	}
	var results map[int]tally
	err := gotest.Run(ctx, gotest.Plain, append(args, pkg), func(stdout io.Reader) (err error) {
		results, err = follow(stdout, out)
		return err
	})
	return results, err
}

// follow counts, and prints what comes from no test (how the fleet starts, why a build failed) and
// the output of what failed.
func follow(in io.Reader, out io.Writer) (map[int]tally, error) {
	results, output := map[int]tally{}, map[string][]string{}
	err := gotest.Each(in, func(e *gotest.Event) {
		switch {
		case strings.HasSuffix(e.Action, "output") && e.Test == "":
			fmt.Fprint(out, e.Output)
		case e.Action == "output":
			output[e.Test] = append(output[e.Test], e.Output)
		case e.Test != "":
			count(results, e)
			if e.Action == "fail" {
				fmt.Fprint(out, strings.Join(output[e.Test], ""))
			}
		}
	}, func(line string) { fmt.Fprintln(out, line) })
	return results, err
}

// count a test of a number, or a top-level test of none. What fails below a number fails the
// number.
func count(results map[int]tally, e *gotest.Event) {
	n := 0
	if match := numbered.FindStringSubmatch(e.Test); match != nil {
		n, _ = strconv.Atoi(match[1]) // digits, as the pattern says
	} else if strings.HasPrefix(e.Test, "TestConformance") || strings.Contains(e.Test, "/") {
		return
	}
	t := results[n]
	switch e.Action {
	case "pass":
		t.passed++
	case "fail":
		t.failed++
	case "skip":
		t.skipped++
	default:
		return
	}
	results[n] = t
}

// verdict on one number.
func verdict(n number, t tally) (passed bool, said string) {
	switch {
	case t.failed > 0 || t.skipped > 0:
		return false, fmt.Sprintf("FAILED    %d of its tests did not pass", t.failed+t.skipped)
	case n.state == stateTest && t.passed == 0:
		return false, "FAILED    no test of it ran"
	case n.state == stateLater && t.passed > 0:
		return false, "FAILED    it has a test and is not later any more"
	case n.state == stateLater:
		return true, "later     " + n.detail
	case n.state == stateDeviates:
		return true, fmt.Sprintf("deviates  %s (%d tests of what is owed instead)", n.detail, t.passed)
	}
	return true, fmt.Sprintf("ok        %d tests", t.passed)
}

// judge prints a line for every number and the result.
func judge(out io.Writer, numbers []number, results map[int]tally, whole bool) error {
	result := struct {
		Passed   int   `json:"passed"`
		Failed   int   `json:"failed"`
		Later    []int `json:"later"`
		Deviates []int `json:"deviates"`
		Numbers  int   `json:"numbers"`
		// Others are tests of no number.
		Others int `json:"others"`
	}{Later: []int{}, Deviates: []int{}, Numbers: len(numbers)}
	for _, n := range numbers {
		ok, said := verdict(n, results[n.n])
		fmt.Fprintf(out, "%3d  %-50s %s\n", n.n, n.title, said)
		switch {
		case !ok:
			result.Failed++
		case n.state == stateLater:
			result.Later = append(result.Later, n.n)
		case n.state == stateDeviates:
			result.Deviates = append(result.Deviates, n.n)
		default:
			result.Passed++
		}
	}
	others := results[0]
	result.Others = others.passed
	result.Failed += others.failed + others.skipped
	for n := range results {
		if n != 0 && !slices.ContainsFunc(numbers, func(known number) bool { return known.n == n }) {
			fmt.Fprintf(out, "%3d  FAILED    it has a test and is not in the table\n", n)
			result.Failed++
		}
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "RESULT %s\n", text)
	if sum := result.Passed + len(result.Later) + len(result.Deviates); result.Failed > 0 || whole && sum != cases {
		return fmt.Errorf("%d failed; %d of %d numbers are accounted for", result.Failed, sum, len(numbers))
	}
	return nil
}
