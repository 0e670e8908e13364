// SPDX-License-Identifier: Apache-2.0

package kmod

import "slices"

// Files is the part of an image's tree that a node needs.
type Files struct {
	// Modules are the module files in load order, relative to the tree.
	Modules []string
	// Indexes are the tree's index files.
	Indexes []string
	// Missing are dependencies that the image does not have, sorted; the host must have them.
	Missing []string
}

// Closure returns the files of an image's tree that loading want takes: the wanted modules, what they depend on within
// the image, and the index files. The wanted modules themselves must be there (*NotFoundError).
func Closure(want Want, image *Tree) (Files, error) {
	r := newResolver(want, image, nil)
	files := Files{Indexes: image.Indexes()}
	r.missing = func(name string) {
		if !slices.Contains(files.Missing, name) {
			files.Missing = append(files.Missing, name)
		}
	}
	if err := r.wanted(want.Modules); err != nil {
		return Files{}, err
	}
	for _, step := range r.steps {
		files.Modules = append(files.Modules, step.Path)
	}
	slices.Sort(files.Missing)
	return files, nil
}
