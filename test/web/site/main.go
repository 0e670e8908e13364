// SPDX-License-Identifier: Apache-2.0

// Command site builds the site of the pages (tools/site) and checks it: every link and anchor leads
// somewhere, nothing is loaded from another machine, and every field, flag, reason and metric is
// listed with a meaning, and nothing else. Chromium shows pages of all sorts on two screens, by day
// and by night: none is too wide or too faint, or asks another machine for anything. It prints what
// is wrong, and RESULT; the exit status is 1 when something is.
//
// SHOTS is a folder for pictures of these pages, from the repository's root.
//
// BREAK=link gives a page a link to a heading that is not there, BREAK=field takes a field's row
// away (tools/site/build.mjs): both must fail.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/drover-project/drover/test/web/site/pages"
)

// repository is its root, from the Go module that this is in.
const repository = "../.."

// tool is where the site's generator is unpacked, built is what it makes; both from the root.
const (
	tool  = ".cache/site-tool"
	built = ".cache/site/dist"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	began := time.Now()
	root, err := filepath.Abs(repository)
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	if err := build(ctx, root); err != nil {
		return err
	}
	all, err := list(ctx, root)
	if err != nil {
		return err
	}
	site, err := pages.Read(filepath.Join(root, built))
	if err != nil {
		return err
	}
	links, broken := site.Broken()
	v := site.Judge(all)
	disordered := site.Disordered()
	looks, bad, err := look(ctx, filepath.Join(root, built), shotsFolder(root))
	if err != nil {
		return err
	}
	for _, problem := range slices.Concat(prefixed("broken: ", broken), prefixed("undocumented: ", v.Undocumented),
		prefixed("unlisted: ", v.Unlisted), prefixed("headings: ", disordered), prefixed("look: ", bad)) {
		fmt.Println(problem)
	}
	line, err := json.Marshal(map[string]int{
		"pages": len(site.Pages), "links": links, "brokenLinks": len(broken),
		"fields": v.Fields, "flags": v.Flags, "reasons": v.Reasons, "metrics": v.Metrics,
		"undocumented": len(v.Undocumented), "unlisted": len(v.Unlisted), "badHeadings": len(disordered),
		"looks": looks, "badLooks": len(bad),
		"seconds": int(time.Since(began).Seconds()),
	})
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	if len(broken)+len(v.Undocumented)+len(v.Unlisted)+len(disordered)+len(bad) > 0 {
		return errors.New("the site is not as it must be")
	}
	return nil
}

// shotsFolder is where pictures go, or empty. SHOTS is relative to the repository's root.
func shotsFolder(root string) string {
	folder := os.Getenv("SHOTS")
	if folder == "" || filepath.IsAbs(folder) {
		return folder
	}
	return filepath.Join(root, folder)
}

func prefixed(prefix string, of []string) []string {
	lines := make([]string, 0, len(of))
	for _, s := range of {
		lines = append(lines, prefix+s)
	}
	return lines
}

// build makes the site of a copy of the pages.
func build(ctx context.Context, root string) error {
	node := exec.CommandContext(ctx, "node", "build.mjs")
	node.Dir = filepath.Join(root, tool)
	if said, err := node.CombinedOutput(); err != nil {
		return fmt.Errorf("build the site: %w\n%s", err, said)
	}
	return nil
}

// list asks what exists.
func list(ctx context.Context, root string) (*pages.Existing, error) {
	reference := exec.CommandContext(ctx, "go", "run", "./hack/reference", "-list")
	if programs := os.Getenv("PROGRAMS"); programs != "" {
		reference.Args = append(reference.Args, "-programs", programs)
	}
	reference.Dir, reference.Stderr = root, os.Stderr
	said, err := reference.Output()
	if err != nil {
		return nil, fmt.Errorf("list what exists: %w", err)
	}
	var all pages.Existing
	if err := json.Unmarshal(said, &all); err != nil {
		return nil, fmt.Errorf("read what exists: %w", err)
	}
	return &all, nil
}
