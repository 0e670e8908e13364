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
	"io/fs"
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

// added is an entry of the layer that is made: a folder, or a file by the name of its content.
type added struct {
	header  *tar.Header
	content string
}

// headerOf has the attributes of an entry, without its times.
func headerOf(kind byte, h *tar.Header) *tar.Header {
	kept := &tar.Header{
		Typeflag: kind, Mode: h.Mode & 0o7777, ModTime: epoch, Format: tar.FormatPAX,
		Uid: h.Uid, Gid: h.Gid, Uname: h.Uname, Gname: h.Gname,
	}
	for name, value := range h.PAXRecords {
		if strings.HasPrefix(name, xattrPrefix) {
			if kept.PAXRecords == nil {
				kept.PAXRecords = map[string]string{}
			}
			kept.PAXRecords[name] = value
		}
	}
	return kept
}

// folders of files, as far as the image has entries for them: some runtimes would replace them by
// folders with permissions of their own.
func (v *view) folders(files []added) []added {
	found := map[string]*tar.Header{}
	for _, one := range files {
		at := &v.root
		parts := strings.Split(path.Dir(one.header.Name), "/")
		for depth, part := range parts {
			if at = at.children[part]; at == nil {
				break
			}
			if at.header != nil {
				found[path.Join(parts[:depth+1]...)] = at.header
			}
		}
	}
	var all []added
	for _, name := range slices.Sorted(maps.Keys(found)) {
		h := *found[name]
		h.Name = name + "/"
		all = append(all, added{header: &h})
	}
	return all
}

// extend puts a layer on top of the image. The contents are in o.Dir.
func (o Options) extend(image v1.Image, entries []added) (v1.Image, v1.Layer, error) {
	kind, err := image.MediaType()
	if err != nil {
		return nil, nil, fmt.Errorf("read the image's manifest: %w", err)
	}
	layer, err := newLayer(o.Dir, layerType(kind), os.DirFS(o.Dir), entries)
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

// layer is a compressed layer in a local file.
type layer struct {
	file           string
	kind           types.MediaType
	digest, diffID v1.Hash
	size           int64
}

// newLayer packs entries into a file in dir. Contents are names in source.
func newLayer(dir string, kind types.MediaType, source fs.FS, entries []added) (_ v1.Layer, err error) {
	out, err := os.CreateTemp(dir, "layer-*.tar.gz")
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	defer func() { err = errors.Join(err, wrap("make a layer", out.Close())) }()
	digest, diffID := sha256.New(), sha256.New()
	packed := gzip.NewWriter(io.MultiWriter(out, digest))
	archive := tar.NewWriter(io.MultiWriter(packed, diffID))
	for _, one := range entries {
		if err := one.write(archive, source); err != nil {
			return nil, fmt.Errorf("write /%s: %w", one.header.Name, err)
		}
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

func (a added) write(archive *tar.Writer, source fs.FS) (err error) {
	if a.header.Typeflag == tar.TypeDir {
		return wrap("write the entry", archive.WriteHeader(a.header))
	}
	content, err := source.Open(a.content)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, wrap("close", content.Close())) }()
	info, err := content.Stat()
	if err != nil {
		return fmt.Errorf("stat %s: %w", a.content, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", ErrRefused, a.content)
	}
	a.header.Size = info.Size()
	if err := archive.WriteHeader(a.header); err != nil {
		return fmt.Errorf("write the entry: %w", err)
	}
	_, err = io.Copy(archive, content)
	return wrap("copy "+a.content, err)
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
