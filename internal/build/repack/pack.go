// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
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
	one, err := newLayer(dir, types.OCILayer, func(archive *tar.Writer) error { return writeFiles(archive, source, files) })
	if err != nil {
		return nil, nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{Architecture: arch, OS: "linux", Created: v1.Time{Time: epoch},
		RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return nil, nil, fmt.Errorf("set the image's configuration: %w", err)
	}
	image, err = mutate.AppendLayers(image, one)
	if err != nil {
		return nil, nil, fmt.Errorf("append the layer: %w", err)
	}
	return image, one, nil
}

func writeFiles(archive *tar.Writer, source fs.FS, files map[string]string) error {
	folders := map[string]bool{}
	for target := range files {
		if !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
			return fmt.Errorf("path in the image %q is not absolute and clean", target)
		}
		for folder := path.Dir(target); folder != "/"; folder = path.Dir(folder) {
			folders[folder] = true
		}
	}
	plain := func(mode int64) *attributes { return &attributes{mode: mode} }
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		if _, isFile := files[name]; isFile {
			return fmt.Errorf("path in the image %q is both a file and a folder", name)
		}
		h := header{path: name, attr: plain(0o755)}.tar(tar.TypeDir)
		h.Name += "/"
		if err := archive.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(files)) {
		h := header{path: target, attr: plain(0o644)}.tar(tar.TypeReg)
		if err := writeFile(archive, h, source, files[target]); err != nil {
			return fmt.Errorf("write %s: %w", target, err)
		}
	}
	return nil
}

func writeFile(archive *tar.Writer, h *tar.Header, source fs.FS, name string) (err error) {
	content, err := source.Open(name)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, wrap("close", content.Close())) }()
	info, err := content.Stat()
	if err != nil {
		return fmt.Errorf("stat %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", ErrRefused, name)
	}
	h.Size = info.Size()
	if err := archive.WriteHeader(h); err != nil {
		return fmt.Errorf("write the entry: %w", err)
	}
	if _, err := io.Copy(archive, content); err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	return nil
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
