// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// contents of the layer that is made.
type contents struct {
	folders []header
	files   []changedFile
}

// withFolders adds the files' folders that the image has entries for: some runtimes would replace
// them by folders with permissions of their own.
func (v *view) withFolders(files []changedFile) contents {
	attr := map[string]*attributes{}
	for _, one := range files {
		at := &v.root
		parts := strings.Split(strings.Trim(path.Dir(one.header.path), "/"), "/")
		for depth, part := range parts {
			if at = at.children[part]; at == nil {
				break
			}
			if at.explicit {
				attr["/"+path.Join(parts[:depth+1]...)] = at.attr
			}
		}
	}
	var all contents
	for _, name := range slices.Sorted(maps.Keys(attr)) {
		all.folders = append(all.folders, header{path: name, attr: attr[name]})
	}
	all.files = files
	return all
}

// extend puts the layer on top of the image.
func (o Options) extend(image v1.Image, c contents) (v1.Image, v1.Layer, error) {
	kind, err := image.MediaType()
	if err != nil {
		return nil, nil, fmt.Errorf("read the image's manifest: %w", err)
	}
	layer, err := newLayer(o.Dir, layerType(kind), c.write)
	if err != nil {
		return nil, nil, err
	}
	result, err := mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{CreatedBy: o.Comment, Created: v1.Time{Time: epoch}},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("append the layer: %w", err)
	}
	if _, err := result.Digest(); err != nil {
		return nil, nil, fmt.Errorf("append the layer: %w", err)
	}
	return result, layer, nil
}

var epoch = time.Unix(0, 0).UTC()

func layerType(image types.MediaType) types.MediaType {
	if image == types.DockerManifestSchema2 {
		return types.DockerLayer
	}
	return types.OCILayer
}

func (c contents) write(archive *tar.Writer) error {
	for _, one := range c.folders {
		h := one.tar(tar.TypeDir)
		h.Name += "/"
		if err := archive.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", one.path, err)
		}
	}
	for _, one := range c.files {
		if err := one.write(archive); err != nil {
			return fmt.Errorf("write %s: %w", one.header.path, err)
		}
	}
	return nil
}

func (f changedFile) write(archive *tar.Writer) (err error) {
	h := f.header.tar(tar.TypeReg)
	h.Size = f.size
	if err := archive.WriteHeader(h); err != nil {
		return fmt.Errorf("write the entry: %w", err)
	}
	content, err := os.Open(f.local)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, wrap("close", content.Close())) }()
	if _, err := io.Copy(archive, content); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

func (h header) tar(kind byte) *tar.Header {
	return &tar.Header{
		Typeflag: kind, Name: strings.TrimPrefix(h.path, "/"), Mode: h.attr.mode, ModTime: epoch, Format: tar.FormatPAX,
		Uid: h.attr.uid, Gid: h.attr.gid, Uname: h.attr.uname, Gname: h.attr.gname, PAXRecords: h.attr.xattrs,
	}
}

// layer is a compressed layer in a local file.
type layer struct {
	file           string
	kind           types.MediaType
	digest, diffID v1.Hash
	size           int64
}

// newLayer packs what write writes into a file in dir.
func newLayer(dir string, kind types.MediaType, write func(*tar.Writer) error) (_ v1.Layer, err error) {
	out, err := os.CreateTemp(dir, "layer-*.tar.gz")
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	defer func() { err = errors.Join(err, wrap("make a layer", out.Close())) }()
	digest, diffID := sha256.New(), sha256.New()
	packed := gzip.NewWriter(io.MultiWriter(out, digest))
	archive := tar.NewWriter(io.MultiWriter(packed, diffID))
	if err := write(archive); err != nil {
		return nil, err
	}
	if err := errors.Join(archive.Close(), packed.Close()); err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	info, err := out.Stat()
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	made, err := partial.CompressedToLayer(&layer{file: out.Name(), kind: kind, digest: sum(digest), diffID: sum(diffID), size: info.Size()})
	return made, wrap("make a layer", err)
}

func sum(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

// Digest implements partial.CompressedLayer.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID implements partial.WithDiffID.
func (l *layer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Size implements partial.CompressedLayer.
func (l *layer) Size() (int64, error) { return l.size, nil }

// MediaType implements partial.CompressedLayer.
func (l *layer) MediaType() (types.MediaType, error) { return l.kind, nil }

// Compressed implements partial.CompressedLayer.
func (l *layer) Compressed() (io.ReadCloser, error) {
	content, err := os.Open(l.file)
	return content, wrap("open the layer", err)
}
