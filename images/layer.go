// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// newLayer packs local files under their paths in the image. The archive is made at once and kept,
// so that a file that changes later cannot make a layer whose content differs from its digest.
func newLayer(files map[string]string) (v1.Layer, error) {
	var archive bytes.Buffer
	if err := writeArchive(&archive, files); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	return layer, nil
}

func writeArchive(to io.Writer, files map[string]string) error {
	folders := map[string]bool{}
	for target := range files {
		if !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
			return fmt.Errorf("path in the image %q is not absolute and clean", target)
		}
		for folder := path.Dir(target); folder != "/"; folder = path.Dir(folder) {
			folders[folder] = true
		}
	}
	archive := tar.NewWriter(to)
	// Folders first: each is there before what lies in it.
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if _, isFile := files[folder]; isFile {
			return fmt.Errorf("path in the image %q is both a file and a folder", folder)
		}
		if err := archive.WriteHeader(header(folder+"/", tar.TypeDir, 0o755)); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(files)) {
		if err := writeFile(archive, target, files[target]); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("close archive: %w", err)
	}
	return nil
}

func writeFile(archive *tar.Writer, target, local string) (err error) {
	file, err := os.Open(local)
	if err != nil {
		return fmt.Errorf("open file for the image: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("look at file for the image: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", local)
	}
	// Only whether it is executable is taken from here: the rest depends on the umask.
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	entry := header(target, tar.TypeReg, mode)
	entry.Size = info.Size()
	if err := archive.WriteHeader(entry); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if _, err := io.Copy(archive, file); err != nil {
		return fmt.Errorf("pack %s: %w", local, err)
	}
	return nil
}

// header of an entry that belongs to root and has no time.
func header(target string, kind byte, mode int64) *tar.Header {
	return &tar.Header{Name: strings.TrimPrefix(target, "/"), Typeflag: kind, Mode: mode, ModTime: time.Unix(0, 0)}
}
