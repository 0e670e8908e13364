// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-project/drover/images"
)

// image is the bundle's: its files and nothing else, and its annotations as labels. Nodes of any
// processor unpack it.
type image struct {
	dir          string
	labels       map[string]string
	arch         []string
	layout, push string
}

// write makes the image of the files in dir, which are named by their paths in it.
func (i image) write(ctx context.Context, names []string) error {
	files := map[string]string{}
	for _, name := range names {
		files[path.Join("/", name)] = filepath.Join(i.dir, name)
	}
	byArch := map[string]v1.Image{}
	for _, arch := range i.arch {
		one, err := images.LabelledImage(files, i.labels, arch)
		if err != nil {
			return fmt.Errorf("make the bundle's image: %w", err)
		}
		byArch[arch] = one
	}
	index := images.MultiArch(byArch)
	if err := images.SaveLayout(i.layout, index); err != nil {
		return fmt.Errorf("write the bundle's image: %w", err)
	}
	if i.push == "" {
		return nil
	}
	if err := images.Push(ctx, i.push, index); err != nil {
		return fmt.Errorf("push the bundle's image: %w", err)
	}
	return nil
}
