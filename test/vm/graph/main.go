// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command graph compares, for every module of Debian's kernels for amd64 and arm64, the modules
// that Drover would load and their order with what kmod's modprobe says. It ends with one line
// RESULT. BREAK=order turns one list of ours around, so that the result is red.
//
// Two things are no differences. modprobe takes the order of modules that have nothing to do with
// each other from depmod's sort of the whole tree; ours follows the module's own list. Such lists
// are counted as "reordered" after a check that every module comes after all that modprobe loads
// before it when asked for it alone. And modprobe names a module twice when two ways lead to it.
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
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/test/vm/artifacts"
)

// A run that has found fewer modules has not looked at a whole kernel.
var atLeast = map[string]int{"amd64": 4000, "arm64": 3000}

// shown is how many differences are printed.
const shown = 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "graph:", err)
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
	result := map[string]any{}
	var failed []error
	for _, architecture := range []string{"amd64", "arm64"} {
		root, release, err := cache.ModulesOf(ctx, architecture)
		if err != nil {
			return err
		}
		g, err := compare(ctx, root, release)
		if err != nil {
			return err
		}
		modules, differences := len(g.names), g.differences
		result[key(architecture, "modules")] = modules
		result[key(architecture, "differences")] = len(differences)
		result[key(architecture, "reordered")] = g.reordered
		result[key(architecture, "kernel")] = release
		if modules < atLeast[architecture] {
			failed = append(failed, fmt.Errorf("%d modules of %s are fewer than %d", modules, architecture, atLeast[architecture]))
		}
		for _, difference := range differences[:min(len(differences), shown)] {
			fmt.Println(difference)
		}
		if len(differences) > 0 {
			failed = append(failed, fmt.Errorf("%d differences on %s", len(differences), architecture))
		}
	}
	line, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return errors.Join(failed...)
}

// key is a key of the result; those of amd64 have no prefix.
func key(architecture, name string) string {
	if architecture == "amd64" {
		return name
	}
	return architecture + strings.ToUpper(name[:1]) + name[1:]
}

// graph is one kernel's modules.
type graph struct {
	names []string
	// before are the files that modprobe loads before each file, when asked for that one.
	before map[string][]string
	// reordered counts lists in which only modules that are independent of each other have changed
	// places.
	reordered   int
	differences []string
}

func compare(ctx context.Context, root, release string) (*graph, error) {
	dir := filepath.Join(root, "lib", "modules", release)
	tree, err := kmod.NewTree(os.DirFS(dir))
	if err != nil {
		return nil, err
	}
	indexed, err := kmod.NewIndexedTree(os.DirFS(dir))
	if err != nil {
		return nil, err
	}
	g := &graph{names: tree.Names(), before: map[string][]string{}}
	fmt.Printf("asking modprobe about %d modules of %s\n", len(g.names), release)
	theirs, err := ask(ctx, root, release, g.names)
	if err != nil {
		return nil, err
	}
	for i, name := range g.names {
		path, _ := tree.Path(name)
		file := filepath.Join(dir, path)
		g.before[file] = theirs[i][:max(slices.Index(theirs[i], file), 0)]
	}
	for i, name := range g.names {
		steps, err := kmod.Resolve(kmod.Want{Modules: []string{name}}, nil, tree)
		if err != nil {
			return nil, err
		}
		ours := make([]string, 0, len(steps))
		for _, step := range steps {
			ours = append(ours, filepath.Join(dir, step.Path))
		}
		fromIndex, err := kmod.Resolve(kmod.Want{Modules: []string{name}}, nil, indexed)
		if err != nil {
			return nil, err
		}
		if !slices.EqualFunc(steps, fromIndex, func(a, b kmod.Step) bool { return a.Name == b.Name && a.Path == b.Path }) {
			g.differences = append(g.differences, name+": depmod's index and the folders lead to different lists")
		}
		if os.Getenv("BREAK") == "order" && len(ours) > 1 && len(g.differences) == 0 {
			slices.Reverse(ours)
		}
		g.judge(name, theirs[i], ours)
	}
	return g, nil
}

// judge compares two lists for one module.
func (g *graph) judge(name string, theirs, ours []string) {
	switch {
	case slices.Equal(ours, theirs):
	case g.ordered(ours) && slices.Equal(slices.Sorted(slices.Values(ours)), slices.Sorted(slices.Values(theirs))):
		g.reordered++
	default:
		g.differences = append(g.differences, fmt.Sprintf("%s: modprobe %s, ours %s", name, brief(theirs), brief(ours)))
	}
}

// ordered checks that each file comes after all that modprobe loads before it.
func (g *graph) ordered(files []string) bool {
	for i, file := range files {
		for _, before := range g.before[file] {
			if !slices.Contains(files[:i], before) {
				return false
			}
		}
	}
	return true
}

func brief(files []string) string {
	var names []string
	for _, file := range files {
		name, _ := kmod.ModuleName(file)
		names = append(names, name)
	}
	return "[" + strings.Join(names, " ") + "]"
}

// ask returns for each module the files that modprobe would load, in order.
func ask(ctx context.Context, root, release string, names []string) ([][]string, error) {
	answers := make([][]string, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i, name := range names {
		group.Go(func() (err error) {
			answers[i], err = modprobe(ctx, root, release, name)
			return err
		})
	}
	return answers, group.Wait()
}

func modprobe(ctx context.Context, root, release, name string) ([]string, error) {
	// An empty configuration: blacklists and install commands of this machine have no say.
	output, err := exec.CommandContext(ctx, "modprobe", "-C", "/dev/null", "-d", root, "-S", release, "--show-depends", name).Output()
	if err != nil {
		return nil, fmt.Errorf("modprobe --show-depends %s: %w", name, err)
	}
	var files []string
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "builtin" {
			continue
		}
		if len(fields) < 2 || fields[0] != "insmod" {
			return nil, fmt.Errorf("modprobe --show-depends %s: unexpected line %q", name, line)
		}
		if !slices.Contains(files, fields[1]) {
			files = append(files, fields[1])
		}
	}
	return files, nil
}
