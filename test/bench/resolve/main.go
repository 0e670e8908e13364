// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command resolve measures how long Drover takes to find out what has to be loaded for a module,
// against kmod's `modprobe --show-depends`, for every module of Debian's full amd64 kernel, in one
// run, one after another, with warm caches.
//
// The two are built differently. modprobe is a process per module and looks into binary indexes
// that depmod made. Ours reads the names of all modules from depmod's text once, and each module's
// own .modinfo when it is asked for. So three things are compared:
//
//   - all: one process that resolves all modules from one index, against a modprobe for each. This
//     flatters ours: it starts no processes.
//   - inAgent: read the index anew and resolve one module, in a running process, against one
//     modprobe. This is what the agent does for an order, and what would do it otherwise.
//   - cold: a process that starts, reads the index and resolves one module, against one modprobe.
//     Only this is like with like. Ours reads the whole index for a single answer here, and is the
//     slower one.
//
// The last two are medians over every 40th module, the same ones for both, in turn; so is walk, the
// agent's way where depmod's index has no answer: a walk over all folders instead. It ends with one
// line RESULT. BREAK=index walks over the folders anew for each of all modules, so that the result
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
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/test/vm/artifacts"
)

const (
	// minModules: a run that has found fewer has not looked at a whole kernel.
	minModules = 4000
	// every so many modules one is resolved alone.
	every = 40
)

// result is the line that ends the bench.
type result struct {
	Modules       int     `json:"modules"`
	NativeSeconds float64 `json:"nativeSeconds"`
	KmodSeconds   float64 `json:"kmodSeconds"`
	Ratio         float64 `json:"ratio"`
	// OpenMilliseconds of NativeSeconds went into the index, made once; ModuleMicroseconds into each
	// module.
	OpenMilliseconds   float64 `json:"openMilliseconds"`
	ModuleMicroseconds float64 `json:"moduleMicroseconds"`
	// Alone is how many modules were also resolved each for itself; the rest are medians over them.
	Alone               int     `json:"alone"`
	InAgentMilliseconds float64 `json:"inAgentMilliseconds"`
	WalkMilliseconds    float64 `json:"walkMilliseconds"`
	ColdMilliseconds    float64 `json:"coldMilliseconds"`
	KmodMilliseconds    float64 `json:"kmodMilliseconds"`
	InAgentRatio        float64 `json:"inAgentRatio"`
	ColdRatio           float64 `json:"coldRatio"`
}

// wrong names every bound that the result breaks.
func (r result) wrong() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(r.Modules >= minModules, "%d modules are fewer than %d", r.Modules, minModules)
	check(r.Ratio <= maxRatio, "ratio %.3f is above %.1f", r.Ratio, maxRatio)
	check(r.InAgentRatio <= maxInAgentRatio, "inAgentRatio %.2f is above %.1f", r.InAgentRatio, maxInAgentRatio)
	check(r.ColdRatio <= maxColdRatio, "coldRatio %.2f is above %.1f", r.ColdRatio, maxColdRatio)
	return errors.Join(errs...)
}

// Bounds of the ratios to kmod. Alone, ours takes some milliseconds more than a look-up in a binary
// index. Per load that is little and is accepted; several times what it was when this was written
// is not.
const (
	maxRatio        = 0.2
	maxInAgentRatio = 3.0
	maxColdRatio    = 7.0
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-resolve:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cache, err := artifacts.Open("")
	if err != nil {
		return err
	}
	if err := artifacts.EnsurePackages(ctx); err != nil {
		return err
	}
	root, release, err := cache.ModulesOf(ctx, "amd64")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "drover-resolve-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	b := &bench{root: root, release: release, dir: filepath.Join(root, "lib", "modules", release), one: filepath.Join(work, "one")}
	if output, err := exec.CommandContext(ctx, "go", "build", "-C", cache.Repository(), "-o", b.one,
		"./test/bench/resolve/one").CombinedOutput(); err != nil {
		return fmt.Errorf("compile: %w: %s", err, output)
	}
	measured, err := b.measure(ctx)
	if err != nil {
		return err
	}
	for value, digits := range map[*float64]int{
		&measured.NativeSeconds: 2, &measured.KmodSeconds: 2, &measured.Ratio: 3, &measured.OpenMilliseconds: 1, &measured.ModuleMicroseconds: 0,
		&measured.InAgentMilliseconds: 1, &measured.WalkMilliseconds: 1, &measured.ColdMilliseconds: 1, &measured.KmodMilliseconds: 1,
		&measured.InAgentRatio: 2, &measured.ColdRatio: 2,
	} {
		*value = rounded(*value, digits)
	}
	line, err := json.Marshal(measured)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return measured.wrong()
}

// rounded to what the measurement is good for.
func rounded(value float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(value*scale) / scale
}

// bench is one run.
type bench struct {
	root, release, dir string
	one                string // the program that resolves one module
}

func (b *bench) measure(ctx context.Context) (result, error) {
	names, err := b.warm()
	if err != nil {
		return result{}, err
	}
	r := result{Modules: len(names)}
	fmt.Printf("resolving %d modules of %s\n", len(names), b.release)
	open, native, err := b.native(names)
	if err != nil {
		return r, err
	}
	kmodAll, err := timed(func() error {
		for _, name := range names {
			if err := b.modprobe(ctx, name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	r.NativeSeconds, r.KmodSeconds, r.Ratio = native.Seconds(), kmodAll.Seconds(), native.Seconds()/kmodAll.Seconds()
	r.OpenMilliseconds = milliseconds(open)
	r.ModuleMicroseconds = float64((native - open).Microseconds()) / float64(len(names))
	return r, b.alone(ctx, names, &r)
}

// warm reads every module once, so that nobody's first look at the disk counts, and returns their
// names.
func (b *bench) warm() ([]string, error) {
	tree, err := kmod.NewTree(os.DirFS(b.dir))
	if err != nil {
		return nil, err
	}
	for _, name := range tree.Names() {
		path, _ := tree.Path(name)
		if _, err := fs.ReadFile(os.DirFS(b.dir), path); err != nil {
			return nil, fmt.Errorf("read a module: %w", err)
		}
	}
	return tree.Names(), nil
}

// native resolves all modules in this process; open is the part of the time that indexing took.
func (b *bench) native(names []string) (open, all time.Duration, err error) {
	index, again := kmod.NewIndexedTree, false
	if os.Getenv("BREAK") == "index" {
		index, again = kmod.NewTree, true
	}
	var tree *kmod.Tree
	all, err = timed(func() error {
		for _, name := range names {
			if tree == nil || again {
				took, err := timed(func() (err error) {
					tree, err = index(os.DirFS(b.dir))
					return err
				})
				if open += took; err != nil {
					return err
				}
			}
			if err := resolve(tree, name); err != nil {
				return err
			}
		}
		return nil
	})
	return open, all, err
}

func resolve(tree *kmod.Tree, name string) error {
	steps, err := kmod.Resolve(kmod.Want{Modules: []string{name}}, nil, tree)
	if err == nil && len(steps) == 0 {
		err = fmt.Errorf("nothing to load for %s", name)
	}
	return err
}

// alone resolves some modules each for itself, in all three ways in turn.
func (b *bench) alone(ctx context.Context, names []string, r *result) error {
	var inAgent, walk, cold, theirs []float64
	for i := 0; i < len(names); i += every {
		for _, way := range []struct {
			took *[]float64
			do   func() error
		}{
			{&inAgent, func() error { return b.anew(kmod.NewIndexedTree, names[i]) }},
			{&walk, func() error { return b.anew(kmod.NewTree, names[i]) }},
			{&cold, func() error { return command(ctx, b.one, b.dir, names[i]) }},
			{&theirs, func() error { return b.modprobe(ctx, names[i]) }},
		} {
			took, err := timed(way.do)
			if err != nil {
				return err
			}
			*way.took = append(*way.took, milliseconds(took))
		}
	}
	r.Alone = len(theirs)
	r.InAgentMilliseconds, r.WalkMilliseconds, r.ColdMilliseconds, r.KmodMilliseconds = median(inAgent), median(walk), median(cold),
		median(theirs)
	r.InAgentRatio, r.ColdRatio = r.InAgentMilliseconds/r.KmodMilliseconds, r.ColdMilliseconds/r.KmodMilliseconds
	return nil
}

// anew indexes the folder and resolves one module.
func (b *bench) anew(index func(fs.FS) (*kmod.Tree, error), name string) error {
	tree, err := index(os.DirFS(b.dir))
	if err != nil {
		return err
	}
	return resolve(tree, name)
}

func (b *bench) modprobe(ctx context.Context, name string) error {
	// An empty configuration: blacklists and install commands of this machine have no say.
	return command(ctx, "modprobe", "-C", "/dev/null", "-d", b.root, "-S", b.release, "--show-depends", name)
}

func command(ctx context.Context, name string, args ...string) error {
	if output, err := exec.CommandContext(ctx, name, args...).Output(); err != nil || len(output) == 0 {
		return fmt.Errorf("%s %v: no answer: %w", name, args, errors.Join(err, errors.New("or an empty one")))
	}
	return nil
}

func timed(do func() error) (time.Duration, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin), err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
