// SPDX-License-Identifier: Apache-2.0

// Package ocidir reads and writes OCI image layouts in folders that others have written to.
//
// A layout comes from a user's build and is read next to secrets. So no link in it is followed,
// only regular files are opened, every blob is compared with its digest, and documents are bounded.
package ocidir

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// ErrLayout marks layouts that are malformed or hostile.
var ErrLayout = errors.New("image layout refused")

// maxDocument bounds manifests, indexes and configurations, as registries do.
const maxDocument = 4 << 20

// Layout is an OCI image layout.
type Layout struct {
	root *os.Root
	wrap func(v1.Layer) v1.Layer
}

// Open opens a layout.
func Open(dir string) (*Layout, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the layout: %w", err)
	}
	return &Layout{root: root}, nil
}

// Close closes the layout.
func (l *Layout) Close() error {
	if err := l.root.Close(); err != nil {
		return fmt.Errorf("close the layout: %w", err)
	}
	return nil
}

// Wrap replaces the layers of the layout's images by what wrap makes of them.
func (l *Layout) Wrap(wrap func(v1.Layer) v1.Layer) { l.wrap = wrap }

// Manifest is an image or an index of images: a v1.Image or a v1.ImageIndex.
type Manifest interface {
	partial.Describable
	RawManifest() ([]byte, error)
}

// Top is the one image or index of the layout.
func (l *Layout) Top() (Manifest, error) {
	file, size, err := l.file("index.json")
	if err != nil {
		return nil, fmt.Errorf("%w: index.json: %w", ErrLayout, err)
	}
	raw, err := readAll(file, size)
	if err != nil {
		return nil, err
	}
	var top v1.IndexManifest
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("%w: index.json: %w", ErrLayout, err)
	}
	if len(top.Manifests) != 1 {
		return nil, fmt.Errorf("%w: it holds %d images instead of one", ErrLayout, len(top.Manifests))
	}
	switch d := top.Manifests[0]; {
	case d.MediaType.IsImage():
		return l.image(d)
	case d.MediaType.IsIndex():
		return l.index(d)
	default:
		return nil, fmt.Errorf("%w: media type %q is not an image's", ErrLayout, d.MediaType)
	}
}

// file opens a regular file, never by a link.
func (l *Layout) file(name string) (*os.File, int64, error) {
	before, err := l.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("%w: %s is missing", ErrLayout, name)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("stat: %w", err)
	}
	if !before.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%w: %s is not a regular file", ErrLayout, name)
	}
	file, err := l.root.Open(name)
	if err != nil {
		return nil, 0, fmt.Errorf("open: %w", err)
	}
	after, err := file.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%w: %s changes while it is read", ErrLayout, name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, after.Size(), nil
}

func blobPath(d v1.Hash) (string, error) {
	decoded, err := hex.DecodeString(d.Hex)
	if err != nil || d.Algorithm != "sha256" || len(decoded) != sha256.Size {
		return "", fmt.Errorf("%w: digest %s is not a SHA-256", ErrLayout, d)
	}
	return path.Join("blobs", d.Algorithm, d.Hex), nil
}

// open opens a blob. Reading it fails, at the latest at its end, if its digest differs.
func (l *Layout) open(d v1.Descriptor) (io.ReadCloser, error) {
	name, err := blobPath(d.Digest)
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{"blobs", "blobs/sha256"} {
		if info, err := l.root.Lstat(folder); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%w: %s is not a folder", ErrLayout, folder)
		}
	}
	file, size, err := l.file(name)
	if err != nil {
		return nil, err
	}
	if size != d.Size {
		return nil, errors.Join(fmt.Errorf("%w: %s has %d bytes instead of %d", ErrLayout, name, size, d.Size), file.Close())
	}
	return &checked{file: file, digest: d.Digest, left: size, sum: sha256.New()}, nil
}

// read reads a small blob.
func (l *Layout) read(d v1.Descriptor) ([]byte, error) {
	content, err := l.open(d)
	if err != nil {
		return nil, err
	}
	return readAll(content, d.Size)
}

func readAll(from io.ReadCloser, size int64) (_ []byte, err error) {
	defer func() { err = errors.Join(err, from.Close()) }()
	if size > maxDocument {
		return nil, fmt.Errorf("%w: a document of %d bytes, limit %d", ErrLayout, size, maxDocument)
	}
	raw, err := io.ReadAll(io.LimitReader(from, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read the layout: %w", err)
	}
	return raw, nil
}

// layer is a layer of an image of the layout.
func (l *Layout) layer(d v1.Descriptor) (v1.Layer, error) {
	layer, err := partial.CompressedToLayer(&blob{desc: d, from: l})
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", d.Digest, err)
	}
	if l.wrap != nil {
		layer = l.wrap(layer)
	}
	return layer, nil
}

// checked compares what is read with a digest.
type checked struct {
	file   *os.File
	digest v1.Hash
	left   int64
	sum    hash.Hash
}

// Read implements io.Reader.
func (c *checked) Read(into []byte) (int, error) {
	n, err := c.file.Read(into)
	c.left -= int64(n)
	if c.left < 0 {
		return 0, fmt.Errorf("%w: %s grows while it is read", ErrLayout, c.digest)
	}
	c.sum.Write(into[:n])
	if errors.Is(err, io.EOF) && (c.left != 0 || hex.EncodeToString(c.sum.Sum(nil)) != strings.ToLower(c.digest.Hex)) {
		return n, fmt.Errorf("%w: a blob does not match its digest %s", ErrLayout, c.digest)
	}
	return n, err //nolint:wrapcheck // readers pass io.EOF on as it is
}

// Close implements io.Closer.
func (c *checked) Close() error {
	if err := c.file.Close(); err != nil {
		return fmt.Errorf("close a blob: %w", err)
	}
	return nil
}
