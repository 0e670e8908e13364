// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/shared/imagefs"
)

// pattern is an absolute path, each of whose parts is a name or a pattern of names.
type pattern struct {
	text  string
	parts []string
}

// ErrPattern marks a pattern that cannot be read.
var ErrPattern = errors.New("bad pattern")

func parsePatterns(texts []string) ([]pattern, error) {
	var all []pattern
	for _, text := range texts {
		if !strings.HasPrefix(text, "/") {
			return nil, fmt.Errorf("%w: %q is not an absolute path", ErrPattern, text)
		}
		clean := strings.TrimPrefix(path.Clean(text), "/")
		if clean == "" {
			return nil, fmt.Errorf("%w: %q is the root", ErrPattern, text)
		}
		// Shells negate by "!", this library by "^".
		parts := strings.Split(strings.ReplaceAll(clean, "[!", "[^"), "/")
		for _, part := range parts {
			if _, err := path.Match(part, ""); err != nil {
				return nil, fmt.Errorf("%w: %q: %w", ErrPattern, text, err)
			}
		}
		all = append(all, pattern{text: text, parts: parts})
	}
	return all, nil
}

func isPattern(part string) bool { return strings.ContainsAny(part, `*?[\`) }

// wanted is a file to be changed.
type wanted struct {
	path string
	// layer and entry hold its content. A hard link's entry is another name in the same layer.
	layer int
	entry string
}

// match finds the files that the patterns name, once and sorted, and the patterns that name none.
func (v *view) match(patterns []pattern, limit int) (found []wanted, unmatched []string, err error) {
	byPath := map[string]wanted{}
	image := imagefs.New(v)
	for _, p := range patterns {
		files, err := glob(image, p)
		if err != nil {
			return nil, nil, refused(err)
		}
		if len(files) == 0 {
			unmatched = append(unmatched, p.text)
		}
		for _, name := range files {
			if byPath[name], err = v.wanted(name); err != nil {
				return nil, nil, err
			}
		}
		if len(byPath) > limit {
			return nil, nil, fmt.Errorf("%w: the patterns name more than %d files", ErrRefused, limit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byPath)) {
		found = append(found, byPath[name])
	}
	return found, unmatched, nil
}

// wanted is where the content of a file comes from. No part of name is a link.
func (v *view) wanted(name string) (wanted, error) {
	at, err := v.at(name)
	if err != nil {
		return wanted{}, err
	}
	want := wanted{path: "/" + name, layer: int(at.layer), entry: name}
	switch at.kind {
	case file:
		return want, nil
	case hardlink:
		want.entry = at.link
		return want, nil
	}
	return wanted{}, fmt.Errorf("%w: %s is a device or a pipe", ErrRefused, want.path)
}

// glob expands a pattern as a shell in a container, to paths without links: hidden names need their
// dot, links are followed. One that leads nowhere is an error: a shell would pass on its name.
func glob(image *imagefs.FS, p pattern) ([]string, error) {
	at := []string{"."}
	for depth, part := range p.parts {
		next := map[string]bool{}
		for _, dir := range at {
			names, err := named(image, dir, part)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				info, err := image.Stat(path.Join(dir, name))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				own, pathErr := image.Resolve(path.Join(dir, name))
				if err := errors.Join(err, pathErr); err != nil {
					return nil, err
				}
				if isLast := depth == len(p.parts)-1; isLast != info.IsDir() {
					next[own] = true
				}
			}
		}
		at = slices.Sorted(maps.Keys(next))
	}
	return at, nil
}

// named are the names in a directory that one part of a pattern stands for.
func named(image *imagefs.FS, dir, part string) ([]string, error) {
	if !isPattern(part) {
		return []string{part}, nil
	}
	entries, err := image.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(part, ".") {
			continue
		}
		if ok, err := path.Match(part, e.Name()); ok && err == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
