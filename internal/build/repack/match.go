// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
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

// place is a node with its own path: no part of it is a link.
type place struct {
	path string
	node *node
}

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
	for _, p := range patterns {
		files, err := v.glob(p)
		if err != nil {
			return nil, nil, err
		}
		if len(files) == 0 {
			unmatched = append(unmatched, p.text)
		}
		for _, one := range files {
			want, err := wantedAt(one)
			if err != nil {
				return nil, nil, err
			}
			byPath[want.path] = want
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

// wantedAt is where the content of a file comes from. glob has left out folders.
func wantedAt(at place) (wanted, error) {
	want := wanted{path: "/" + at.path, layer: int(at.node.layer), entry: at.path}
	switch at.node.kind {
	case file:
		return want, nil
	case hardlink:
		want.entry = at.node.link
		return want, nil
	}
	return wanted{}, fmt.Errorf("%w: %s is a device or a pipe", ErrRefused, want.path)
}

// glob expands a pattern as a shell in a container: hidden names need their dot, links are
// followed.
func (v *view) glob(p pattern) ([]place, error) {
	at := []place{{node: &v.root}}
	for depth, part := range p.parts {
		next := map[string]*node{}
		for _, dir := range at {
			for _, name := range dir.node.named(part) {
				one, err := v.resolve(path.Join(dir.path, name))
				if err != nil {
					return nil, err
				}
				isLast := depth == len(p.parts)-1
				if one.node != nil && isLast == (one.node.kind != folder) {
					next[one.path] = one.node
				}
			}
		}
		at = at[:0:0]
		for own, one := range next {
			at = append(at, place{own, one})
		}
	}
	return at, nil
}

func (n *node) named(part string) []string {
	if !isPattern(part) {
		return []string{part}
	}
	var names []string
	for name := range n.children {
		if strings.HasPrefix(name, ".") && !strings.HasPrefix(part, ".") {
			continue
		}
		if ok, err := path.Match(part, name); ok && err == nil {
			names = append(names, name)
		}
	}
	return names
}

// resolve follows a path within the image, never out of it. The node is nil when there is nothing.
func (v *view) resolve(name string) (place, error) {
	const most = 40 // as the kernel
	var hops int
	var done []*node
	var names []string
	todo := strings.Split(name, "/")
	at := &v.root
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			if len(done) > 0 {
				at, done, names = done[len(done)-1], done[:len(done)-1], names[:len(names)-1]
			}
			continue
		}
		next := at.children[part]
		if at.kind != folder || next == nil || next.kind == gone {
			return place{}, nil
		}
		if next.unclear {
			return place{}, fmt.Errorf("%w: layers do not agree on whether /%s is a folder", ErrRefused, path.Join(append(names, part)...))
		}
		if next.kind != symlink {
			done, names, at = append(done, at), append(names, part), next
			continue
		}
		if hops++; hops > most {
			return place{}, nil // a loop, which leads nowhere
		}
		if strings.HasPrefix(next.link, "/") {
			at, done, names = &v.root, nil, nil
		}
		todo = append(strings.Split(next.link, "/"), todo...)
	}
	return place{path: strings.Join(names, "/"), node: at}, nil
}
