// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command sign measures how long Drover takes to sign all modules of Debian's full amd64 kernel,
// against the kernel's own scripts/sign-file, and compares every byte of what the two write.
//
// Both read a module's file and write the signed one to a folder in memory, both keep two cores
// busy with two workers, and they take turns by batches of modules. It compares what a signing Job
// does: one process of ours signs all modules, while sign-file is a process for each, as it has to
// be. Starting those is counted: it is a part of signing that way.
//
// The times are processor time, of all processes and threads and with the kernel's work for them,
// so that others on the machine do not count; ratio is ours over sign-file's. wallRatio is the same
// by the clock on the wall, which they do skew, and has no bound.
//
// The keys are RSA with 2048 bits, as Machine Owner Keys mostly are. The aim is a ratio of 0.2.
// What keeps us above it is the signature itself, in which OpenSSL, by the vector instructions of
// newer processors, is several times as fast as Go: rsaSeconds is the processor time of nothing but
// as many RSA signatures by crypto/rsa, measured in turns with the rest, and rsaRatio that over
// sign-file's, which is what the ratio would be if all else took no time. So the bound is on the
// rest (see wrong). With 4096 bits the signature is nearly everything: that ratio is measured over
// every 20th module and printed as ratio4096, without a bound.
//
// Debian's modules are signed by Debian; each gets a second signature.
//
// Then one module is signed in an image of 1 GiB and a compressed one of 192 MiB (see signed), if
// nothing is wrong by then.
//
// It ends with one line RESULT. BREAK=hash signs one module with another hash, so that the result
// is red.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/drover-project/drover/test/vm/artifacts"
)

const (
	// minModules: a run that has found fewer has not looked at a whole kernel.
	minModules = 4000
	// maxRatio is the aim, and maxRest what all but RSA may take of sign-file's time where RSA alone
	// leaves less than that of it.
	maxRatio = 0.2
	maxRest  = 0.1
	workers  = 2
	batch    = 200
	// every so many modules one is signed with the longer key.
	every = 20
)

// result is the line that ends the bench.
type result struct {
	Modules         int     `json:"modules"`
	Identical       int     `json:"identical"`
	Seconds         float64 `json:"seconds"`
	SignFileSeconds float64 `json:"signFileSeconds"`
	Ratio           float64 `json:"ratio"`
	RSASeconds      float64 `json:"rsaSeconds"`
	RSARatio        float64 `json:"rsaRatio"`
	KeyBits         int     `json:"keyBits"`
	WallRatio       float64 `json:"wallRatio"`
	Ratio4096       float64 `json:"ratio4096,omitempty"`
	Kernel          string  `json:"kernel"`
	// BigImage and LargeModule are nil when something was wrong before.
	BigImage    *signed `json:"bigImage,omitempty"`
	LargeModule *signed `json:"largeModule,omitempty"`
}

// wrong names every bound that the result breaks.
func (r result) wrong() error {
	var errs []error
	if r.Modules < minModules {
		errs = append(errs, fmt.Errorf("%d modules are fewer than %d", r.Modules, minModules))
	}
	if r.Identical != r.Modules {
		errs = append(errs, fmt.Errorf("%d modules differ from what sign-file writes", r.Modules-r.Identical))
	}
	if limit := max(maxRatio, r.RSARatio+maxRest); r.Ratio > limit {
		errs = append(errs, fmt.Errorf("ratio %.3f is above %.3f", r.Ratio, limit))
	}
	if r.BigImage != nil {
		errs = append(errs, r.BigImage.wrong(), r.LargeModule.wrong(), tooMuch(r.BigImage, r.LargeModule))
	}
	return errors.Join(errs...)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	act := run
	if len(os.Args) > 2 && os.Args[1] == peak {
		act = func(context.Context) error { return peakOf(os.Args[2:]) }
	}
	err := act(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-sign:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r, err := measureModules(ctx)
	if err != nil {
		return err
	}
	if r.wrong() == nil {
		fmt.Println("signing one module in an image of 1 GiB")
		if r.BigImage, err = signImage(ctx, image{bytes: imageBytes, moduleBytes: moduleBytes}); err != nil {
			return fmt.Errorf("big image: %w", err)
		}
		fmt.Println("signing a compressed module of 192 MiB")
		if r.LargeModule, err = signImage(ctx, image{moduleBytes: largeBytes, compressed: true}); err != nil {
			return fmt.Errorf("large module: %w", err)
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return r.wrong()
}

// measureModules signs them all with the short key and, if nothing is wrong with that, some with
// the long one.
func measureModules(ctx context.Context) (r result, err error) {
	cache, err := artifacts.Open("")
	if err != nil {
		return r, err
	}
	if err := artifacts.EnsurePackages(ctx); err != nil {
		return r, err
	}
	program, err := cache.SignFile(ctx)
	if err != nil {
		return r, err
	}
	root, release, err := cache.ModulesOf(ctx, "amd64")
	if err != nil {
		return r, err
	}
	files, err := modulesBelow(root)
	if err != nil {
		return r, err
	}
	work, err := os.MkdirTemp(memory(), "drover-sign-")
	if err != nil {
		return r, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r = result{Modules: len(files), KeyBits: 2048, Kernel: release}
	b, err := newBench(ctx, work, program, r.KeyBits)
	if err != nil {
		return r, err
	}
	fmt.Printf("signing %d modules of %s twice\n", len(files), release)
	if err := b.measure(ctx, files); err != nil {
		return r, err
	}
	r.take(b)
	if r.wrong() != nil {
		return r, nil
	}
	long, err := newBench(ctx, work, program, 4096)
	if err != nil {
		return r, err
	}
	var some []string
	for i := 0; i < len(files); i += every {
		some = append(some, files[i])
	}
	if err := long.measure(ctx, some); err != nil {
		return r, err
	}
	r.Ratio4096 = rounded(long.ours.share(long.theirs), 2)
	return r, nil
}

// take what was measured.
func (r *result) take(b *bench) {
	r.Identical, r.Seconds, r.SignFileSeconds = b.identical, rounded(b.ours.used.Seconds(), 2), rounded(b.theirs.used.Seconds(), 2)
	r.Ratio, r.WallRatio = rounded(b.ours.share(b.theirs), 3), rounded(b.ours.wall.Seconds()/b.theirs.wall.Seconds(), 3)
	r.RSASeconds, r.RSARatio = rounded(b.rsa.used.Seconds(), 2), rounded(b.rsa.share(b.theirs), 3)
}

// memory is a folder whose files take no disk; the usual one for temporary files where there is
// none.
func memory() string {
	const dir = "/dev/shm"
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	return ""
}

func modulesBelow(root string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && strings.HasSuffix(path, ".ko") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the modules: %w", err)
	}
	return files, nil
}

func rounded(value float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(value*scale) / scale
}
