// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command sign measures how long Drover takes to sign all modules of Debian's full amd64 kernel, against the kernel's own scripts/sign-file,
// and compares every byte of what the two write.
//
// Both read a module's file and write the signed one to a folder in memory, both keep two cores busy with two workers, and they take turns by
// batches of modules. It compares what a signing Job does: one process of ours signs all modules, while sign-file is a process for each, as it has
// to be. Starting those is counted: it is a part of signing that way.
//
// The times are processor time, of all processes and threads and with the kernel's work for them, so that others on the machine do not count; ratio
// is ours over sign-file's. wallRatio is the same by the clock on the wall, which they do skew, and has no bound.
//
// The keys are RSA with 2048 bits, as Machine Owner Keys mostly are. With 4096 bits the signature itself, in which OpenSSL is much faster than Go,
// is most of the work: that ratio is measured over every 20th module and printed as ratio4096, without a bound.
//
// Debian's modules are signed by Debian; each gets a second signature.
//
// It ends with one line RESULT. BREAK=hash signs one module with another hash, so that the result is red.
package main

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/drover-project/drover/internal/kmod/sign"
	"github.com/drover-project/drover/test/vm/artifacts"
)

const (
	// minModules: a run that has found fewer has not looked at a whole kernel.
	minModules = 4000
	// maxRatio says when something has gone wrong. The aim is 0.2. On the busy machine where this was written it was 0.27, most of it RSA: Go's
	// takes several times as long as OpenSSL's on such a processor.
	maxRatio = 0.4
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
	KeyBits         int     `json:"keyBits"`
	WallRatio       float64 `json:"wallRatio"`
	Ratio4096       float64 `json:"ratio4096"`
	Kernel          string  `json:"kernel"`
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
	if r.Ratio > maxRatio {
		errs = append(errs, fmt.Errorf("ratio %.3f is above %.1f", r.Ratio, maxRatio))
	}
	return errors.Join(errs...)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-sign:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	cache, err := artifacts.Open("")
	if err != nil {
		return err
	}
	if err := artifacts.EnsurePackages(ctx); err != nil {
		return err
	}
	program, err := cache.SignFile(ctx)
	if err != nil {
		return err
	}
	root, release, err := cache.ModulesOf(ctx, "amd64")
	if err != nil {
		return err
	}
	files, err := modulesBelow(root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(memory(), "drover-sign-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r := result{Modules: len(files), KeyBits: 2048, Kernel: release}
	b, err := newBench(ctx, work, program, r.KeyBits)
	if err != nil {
		return err
	}
	fmt.Printf("signing %d modules of %s twice\n", len(files), release)
	if err := b.measure(ctx, files); err != nil {
		return err
	}
	r.Identical, r.Seconds, r.SignFileSeconds, r.Ratio = b.identical, rounded(b.ours.Seconds(), 2), rounded(b.theirs.Seconds(), 2), rounded(b.ratio(), 3)
	r.WallRatio = rounded(b.ourWall.Seconds()/b.theirWall.Seconds(), 3)
	long, err := newBench(ctx, work, program, 4096)
	if err != nil {
		return err
	}
	var some []string
	for i := 0; i < len(files); i += every {
		some = append(some, files[i])
	}
	if err := long.measure(ctx, some); err != nil {
		return err
	}
	r.Ratio4096 = rounded(long.ratio(), 2)
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return r.wrong()
}

// memory is a folder whose files take no disk; the usual one for temporary files where there is none.
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

// bench signs with one key.
type bench struct {
	program          string
	key, certificate string // files
	ourDir, theirDir string
	ourKey           sign.Key
	// Processor time, and time by the clock.
	ours, theirs       time.Duration
	ourWall, theirWall time.Duration
	identical          int
}

// newBench makes a key and its certificate as KMM's documentation does.
func newBench(ctx context.Context, work, program string, bits int) (*bench, error) {
	dir, err := os.MkdirTemp(work, "key-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	b := &bench{
		program: program, key: filepath.Join(dir, sign.KeyFile), certificate: filepath.Join(dir, sign.CertificateFile),
		ourDir: filepath.Join(dir, "ours"), theirDir: filepath.Join(dir, "theirs"),
	}
	if err := errors.Join(os.Mkdir(b.ourDir, 0o755), os.Mkdir(b.theirDir, 0o755)); err != nil {
		return nil, fmt.Errorf("make folders: %w", err)
	}
	args := strings.Fields(fmt.Sprintf("req -x509 -new -nodes -utf8 -sha256 -days 36500 -batch -subj /CN=bench -newkey rsa:%d -outform DER", bits))
	if output, err := exec.CommandContext(ctx, "openssl", append(args, "-keyout", b.key, "-out", b.certificate)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make a key: %w: %s", err, output)
	}
	b.ourKey, err = sign.ReadKey(os.DirFS(dir), os.DirFS(dir))
	return b, err
}

func (b *bench) ratio() float64 { return b.ours.Seconds() / b.theirs.Seconds() }

// measure signs all files, in batches by turns, and compares.
func (b *bench) measure(ctx context.Context, files []string) error {
	for len(files) > 0 {
		some := files[:min(batch, len(files))]
		files = files[len(some):]
		for _, file := range some { // into the page cache, for both
			if _, err := os.ReadFile(file); err != nil {
				return fmt.Errorf("read a module: %w", err)
			}
		}
		took, used, err := each(ctx, some, b.signFile)
		if err != nil {
			return err
		}
		b.theirs, b.theirWall = b.theirs+used, b.theirWall+took
		if took, used, err = each(ctx, some, b.sign); err != nil {
			return err
		}
		b.ours, b.ourWall = b.ours+used, b.ourWall+took
		for _, file := range some {
			if err := b.compare(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// each does something to all files with two workers, and says how long it took, by the clock and of the processors.
func each(ctx context.Context, files []string, do func(context.Context, string) error) (took, used time.Duration, err error) {
	before, err := processorTime()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, file := range files {
		group.Go(func() error { return do(ctx, file) })
	}
	if err := group.Wait(); err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	after, err := processorTime()
	return took, after - before, err
}

// processorTime that this process and its children that ended have used.
func processorTime() (time.Duration, error) {
	var used time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err != nil {
			return 0, fmt.Errorf("look at the processor time: %w", err)
		}
		used += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return used, nil
}

func (b *bench) signFile(ctx context.Context, file string) error {
	command := exec.CommandContext(ctx, b.program, "sha256", b.key, b.certificate, file, filepath.Join(b.theirDir, filepath.Base(file)))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("sign-file %s: %w: %s", file, err, output)
	}
	return nil
}

func (b *bench) sign(_ context.Context, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read a module: %w", err)
	}
	var o sign.Options
	if os.Getenv("BREAK") == "hash" && filepath.Base(file) == "veth.ko" {
		o.Hash = crypto.SHA512
	}
	signed, err := sign.File(file, content, b.ourKey, o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.ourDir, filepath.Base(file)), signed, 0o644); err != nil {
		return fmt.Errorf("write a module: %w", err)
	}
	return nil
}

// compare counts a module as identical if it is, and makes room for the next ones.
func (b *bench) compare(file string) error {
	ourFile, theirFile := filepath.Join(b.ourDir, filepath.Base(file)), filepath.Join(b.theirDir, filepath.Base(file))
	ours, err := os.ReadFile(ourFile)
	if err != nil {
		return fmt.Errorf("read what we signed: %w", err)
	}
	theirs, err := os.ReadFile(theirFile)
	if err != nil {
		return fmt.Errorf("read what sign-file signed: %w", err)
	}
	before, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("look at the module: %w", err)
	}
	// Longer than it was: equal files that nobody has signed prove nothing.
	if bytes.Equal(ours, theirs) && int64(len(ours)) > before.Size() {
		b.identical++
	} else {
		fmt.Printf("%s differs\n", file)
	}
	if err := errors.Join(os.Remove(ourFile), os.Remove(theirFile)); err != nil {
		return fmt.Errorf("remove what was compared: %w", err)
	}
	return nil
}
