// SPDX-License-Identifier: Apache-2.0

// Package repack changes files inside a container image without unpacking it: one added layer holds
// the changed files and, so that no runtime gives them other permissions, their folders' entries.
//
// Layers are streamed and never held in memory. Each is read once to learn what the image looks
// like, and those that hold wanted files are read a second time. Nothing in an image is trusted:
// what leads outside, what runtimes read differently and what is out of all proportion is refused,
// by name, if a wanted file depends on it.
//
// The same image, patterns and changes give the same digest. An image in which nothing changes is
// returned as it was.
package repack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Change writes the new content of a file, whose path has all links resolved, or nothing.
type Change func(path string, from *os.File, to io.Writer) (changed bool, err error)

// ErrRefused marks images that are malformed or hostile.
var ErrRefused = errors.New("image refused")

// Limits bound what an image may cost.
type Limits struct {
	// Entries of all layers together, and the bytes of their names, links and attributes.
	Entries int
	Names   int64
	// Unpacked bytes of all layers together.
	Unpacked int64
	// File is the size of one wanted file, Files their number, and Changed their bytes together.
	File    int64
	Files   int
	Changed int64
	// Layers of one image.
	Layers int
}

// DefaultLimits are far above what images of kernel modules need.
func DefaultLimits() Limits {
	return Limits{
		Entries: 500_000, Names: 64 << 20, Unpacked: 64 << 30,
		File: 256 << 20, Files: 20_000, Changed: 8 << 30, Layers: 500,
	}
}

// Options say what to change, and where to work.
type Options struct {
	// Patterns are absolute paths, in which *, ? and [a-z] stand for parts of one name, as in a shell.
	Patterns []string
	Change   Change
	// Dir is a folder for layers. It must stay for as long as the resulting image is used.
	Dir string
	// Comment stands in the image's history.
	Comment string
	Limits  Limits
}

// Report says what was found.
type Report struct {
	// Files that the patterns name, with links resolved, sorted; Changed are those with a new content.
	Files   []string
	Changed []string
	// Unmatched are the patterns that name no file in any of the images.
	Unmatched []string
	// Added are the new layers.
	Added []v1.Layer
}

// Image changes files of one image.
func Image(ctx context.Context, image v1.Image, o Options) (v1.Image, Report, error) {
	patterns, err := parsePatterns(o.Patterns)
	if err != nil {
		return nil, Report{}, err
	}
	layers, err := layersOf(image, o.Limits)
	if err != nil {
		return nil, Report{}, err
	}
	spent := &budget{limits: o.Limits}
	seen, err := look(ctx, layers, spent)
	if err != nil {
		return nil, Report{}, err
	}
	found, unmatched, err := seen.match(patterns, o.Limits.Files)
	if err != nil {
		return nil, Report{}, err
	}
	report := Report{Unmatched: unmatched}
	for _, one := range found {
		report.Files = append(report.Files, one.path)
	}
	changed, err := o.change(ctx, layers, found, spent)
	if err != nil {
		return nil, Report{}, err
	}
	for _, one := range changed {
		report.Changed = append(report.Changed, "/"+one.header.Name)
	}
	if len(changed) == 0 {
		return image, report, nil
	}
	result, added, err := o.extend(image, slices.Concat(seen.folders(changed), changed))
	if err != nil {
		return nil, Report{}, err
	}
	report.Added = []v1.Layer{added}
	return result, report, nil
}

// layersOf are the image's, the lowest first.
func layersOf(image v1.Image, limits Limits) ([]v1.Layer, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("read the image's manifest: %w", err)
	}
	if len(layers) > limits.Layers {
		return nil, fmt.Errorf("%w: it has %d layers, more than %d", ErrRefused, len(layers), limits.Layers)
	}
	for _, layer := range layers {
		kind, err := layer.MediaType()
		if err != nil {
			return nil, fmt.Errorf("read the image's manifest: %w", err)
		}
		if !kind.IsLayer() || !kind.IsDistributable() {
			return nil, fmt.Errorf("%w: a layer of type %q cannot be read", ErrRefused, kind)
		}
	}
	return layers, nil
}

// merge joins the reports of the images of one index.
func (r *Report) merge(other Report) {
	r.Unmatched = slices.DeleteFunc(r.Unmatched, func(p string) bool { return !slices.Contains(other.Unmatched, p) })
	r.Files = union(r.Files, other.Files)
	r.Changed = union(r.Changed, other.Changed)
	r.Added = append(r.Added, other.Added...)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
