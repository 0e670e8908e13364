// SPDX-License-Identifier: Apache-2.0

// Command docs does what README and the pages of docs/guide say, block by block, on an embedded
// cluster with hollow nodes. Every fenced block has a tag that says what it is
// (docs/guide/README.md lists them); one without is an error. Links of all pages of the repository
// are checked, too.
//
// Environment: PAGES (names of pages, separated by commas) chooses some, whose RESULT then counts
// those alone. CLUSTER (a kubeconfig, such as that of a `make demo` whose Module was deleted) takes
// a cluster that is there: quick while one writes. BREAK damages one block or link, so that the
// result must be red: untagged, command, output, yaml, go, excerpt, ci, test, drawing or link.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/drover-project/drover/test/docs/page"
)

// result is the line that ends the run.
type result struct {
	Pages   int `json:"pages"`
	Blocks  int `json:"blocks"`
	Ran     int `json:"ran"`
	Skipped int `json:"skipped"`
	// Kinds says how blocks were checked: run, compared, applied, compiled, excerpts, drawings; ci and
	// tests are those that need more than this cluster and name the command or the test that runs
	// them.
	Kinds    map[string]int `json:"kinds"`
	Links    int            `json:"links"`
	Problems int            `json:"problems"`
	Seconds  float64        `json:"seconds"`
	Break    string         `json:"break,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	begin := time.Now()
	all, err := readPages(".")
	if err != nil {
		return err
	}
	chosen, err := choose(all, os.Getenv("PAGES"))
	if err != nil {
		return err
	}
	r := result{Pages: len(chosen), Kinds: map[string]int{}, Break: os.Getenv("BREAK")}
	if err := damage(r.Break, chosen); err != nil {
		return err
	}
	for _, p := range chosen {
		r.Blocks += len(p.Blocks)
	}
	for _, p := range all {
		r.Links += len(p.Links)
	}
	c := checker{root: ".", result: &r}
	c.say(page.CheckLinks(".", values(all))...)
	c.static(chosen)
	if r.Problems == 0 {
		err = c.onCluster(ctx, chosen)
	}
	r.Skipped, r.Seconds = r.Blocks-r.Ran, time.Since(begin).Round(time.Second).Seconds()
	line, marshalErr := json.Marshal(r)
	fmt.Printf("RESULT %s\n", line)
	if r.Problems > 0 || r.Skipped > 0 {
		err = errors.Join(err, fmt.Errorf("%d problems, %d blocks were not run", r.Problems, r.Skipped))
	}
	return errors.Join(err, marshalErr)
}

// checker collects what is wrong.
type checker struct {
	root   string
	result *result
}

// say tells of problems.
func (c *checker) say(problems ...string) {
	for _, p := range problems {
		fmt.Println("FAILED", p)
	}
	c.result.Problems += len(problems)
}

// done counts a block.
func (c *checker) done(k kind) {
	c.result.Ran++
	c.result.Kinds[k.counted()]++
}

// fail tells what is wrong with a block.
func (c *checker) fail(b page.Block, err error) {
	c.say(fmt.Sprintf("%s: %s: %v", b.Where(), strings.TrimSpace(firstLine(b.Text)), err))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
