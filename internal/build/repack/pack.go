// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// New makes an image for Linux on arch that holds nothing but files: names in source, by absolute
// path in the image. All belong to root and have no time, so that equal contents give equal
// digests. The layer is a file in dir, which must stay for as long as the image is used.
func New(dir, arch string, source fs.FS, files map[string]string) (v1.Image, v1.Layer, error) {
	entries, err := entriesFor(files)
	if err != nil {
		return nil, nil, err
	}
	layer, err := newLayer(dir, types.OCILayer, source, entries)
	if err != nil {
		return nil, nil, err
	}
	image, err := Single(layer, v1.ConfigFile{Architecture: arch, Created: v1.Time{Time: epoch}})
	return image, layer, err
}

// Single makes an image for Linux of one layer.
func Single(layer v1.Layer, config v1.ConfigFile) (v1.Image, error) {
	config.OS, config.RootFS = "linux", v1.RootFS{Type: "layers"}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &config)
	if err != nil {
		return nil, fmt.Errorf("set the image's configuration: %w", err)
	}
	image, err = mutate.AppendLayers(image, layer)
	return image, wrap("append the layer", err)
}

// entriesFor are the files' folders, and then the files.
func entriesFor(files map[string]string) ([]added, error) {
	folders := map[string]bool{}
	for target := range files {
		if !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
			return nil, fmt.Errorf("path in the image %q is not absolute and clean", target)
		}
		for folder := path.Dir(target); folder != "/"; folder = path.Dir(folder) {
			folders[folder] = true
		}
	}
	var entries []added
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		if _, isFile := files[name]; isFile {
			return nil, fmt.Errorf("path in the image %q is both a file and a folder", name)
		}
		h := headerOf(tar.TypeDir, &tar.Header{Mode: 0o755})
		h.Name = name[1:] + "/"
		entries = append(entries, added{header: h})
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := headerOf(tar.TypeReg, &tar.Header{Mode: 0o644})
		h.Name = name[1:]
		entries = append(entries, added{header: h, content: files[name]})
	}
	return entries, nil
}

// Find finds the files in a folder that patterns name. A pattern without a slash names files in all
// folders, one with a slash goes from the top.
func Find(source fs.FS, patterns []string) ([]string, error) {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || path.IsAbs(p) || slices.Contains(strings.Split(p, "/"), "..") {
			return nil, fmt.Errorf("%w: %q is not a pattern of files below the folder", ErrPattern, p)
		}
	}
	var found []string
	err := fs.WalkDir(source, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		for _, p := range patterns {
			against := name
			if !strings.Contains(p, "/") {
				against = path.Base(name)
			}
			if ok, err := path.Match(path.Clean(p), against); ok && err == nil {
				found = append(found, name)
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the files: %w", err)
	}
	return found, nil
}
