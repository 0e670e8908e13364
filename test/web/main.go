// SPDX-License-Identifier: Apache-2.0

// Command web tests the cow's page in Chromium. What runs is the image's entry point, with the
// arguments and environment of the Deployment that the operator wants; as root, it sees only the
// image's files, and is the image's user. It prints a line for each property, and RESULT with all
// of them; the exit status is 1 when one does not hold.
//
// BREAK=NAME lets a proxy spoil one property on the way to the browser (breaks.go); only its checks
// run, and must fail. SHOTS is the folder for pictures of the page, from the repository's root;
// .cache/web without it.
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
	"sync"
	"syscall"
	"time"

	"github.com/drover-project/drover/test/web/browser"
)

const (
	// limit bounds one check.
	limit = 2 * time.Minute
	// repository is its root, from here.
	repository = "../.."
)

// rig is what checks run on.
type rig struct {
	// describer prints the operator's container for a greeting.
	describer string
	// root is the folder that holds the image's files.
	root  string
	image imageConfig
	tab   *browser.Tab
	// shots is the folder for pictures; files are those that were made, from the repository's root.
	shots string
	files []string
	spoil *spoiler

	// ending are programs that were asked to end; ends is how those did that failed.
	ending sync.WaitGroup
	mu     sync.Mutex
	ends   []error
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	green, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
	}
	if !green {
		os.Exit(1)
	}
}

func run(ctx context.Context) (green bool, err error) {
	began := time.Now()
	spoil, err := spoilerOf(os.Getenv("BREAK"))
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "drover-web-")
	if err != nil {
		return false, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &rig{spoil: spoil, shots: os.Getenv("SHOTS")}
	if r.shots == "" {
		r.shots = ".cache/web"
	}
	if err := r.build(ctx, dir); err != nil {
		return false, err
	}
	tab, end, err := browser.Start(ctx, filepath.Join(dir, "profile"))
	if err != nil {
		return false, err
	}
	defer end()
	defer r.ending.Wait()
	r.tab = tab
	result := map[string]any{}
	green = r.runChecks(ctx, result)
	result["screenshots"] = r.files
	result["seconds"] = int(time.Since(began).Seconds())
	line, err := json.Marshal(result)
	if err != nil {
		return false, fmt.Errorf("encode the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return green, nil
}

// runChecks runs those that are asked for, and notes what came of each.
func (r *rig) runChecks(ctx context.Context, result map[string]any) (green bool) {
	green = true
	for _, c := range checks {
		if !r.spoil.concerns(c.name) {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, limit)
		began := time.Now()
		err := c.run(bounded, r)
		cancel()
		result[c.name] = err == nil
		state := "ok"
		if err != nil {
			state, green = "FAILED "+err.Error(), false
		}
		fmt.Printf("%-14s %5.1f s  %s: %s\n", c.name, time.Since(began).Seconds(), c.says, state)
	}
	return green
}

// build makes the image and unpacks it into a folder that everybody may read.
func (r *rig) build(ctx context.Context, dir string) error {
	r.root, r.describer = filepath.Join(dir, "root"), filepath.Join(dir, "lolcowpod")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(r.root, 0o755)); err != nil {
		return fmt.Errorf("make a folder for the image: %w", err)
	}
	compile := exec.CommandContext(ctx, "go", "build", "-o", r.describer, "./hack/lolcowpod")
	compile.Dir = repository
	if said, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("compile hack/lolcowpod: %w\n%s", err, said)
	}
	unpack := exec.CommandContext(ctx, r.describer, "image", r.root)
	unpack.Dir, unpack.Stderr = repository, os.Stderr
	config, err := unpack.Output()
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	if err := json.Unmarshal(config, &r.image); err != nil {
		return fmt.Errorf("read the image's configuration: %w", err)
	}
	return nil
}
