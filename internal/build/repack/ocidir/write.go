// SPDX-License-Identifier: Apache-2.0

package ocidir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Write writes a layout of an image or an index (v1.Image or v1.ImageIndex), with the given layers.
// Of another layout in the folder all but its index.json stays: an image can take the place of the
// one that it was made from.
func Write(dir string, top partial.Describable, layers []v1.Layer) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the layout: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("make the layout: %w", err)
	}
	w := writer{root}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, folder := range []string{"blobs", "blobs/sha256"} {
		if err := w.folder(folder); err != nil {
			return err
		}
	}
	for _, layer := range layers {
		if err := w.layer(layer); err != nil {
			return err
		}
	}
	if err := w.documents(top); err != nil {
		return err
	}
	d, err := partial.Descriptor(top)
	if err != nil {
		return fmt.Errorf("describe the image: %w", err)
	}
	d.Annotations, d.Data = nil, nil
	raw, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{*d}})
	if err != nil {
		return fmt.Errorf("write index.json: %w", err)
	}
	return errors.Join(
		w.file("oci-layout", strings.NewReader(`{"imageLayoutVersion":"1.0.0"}`)),
		w.file("index.json", bytes.NewReader(raw)))
}

// writer writes into a folder that others have written to, never through a link of theirs.
type writer struct{ *os.Root }

func (w writer) folder(name string) error {
	if err := w.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the layout: %w", err)
	}
	if info, err := w.Lstat(name); err != nil || !info.IsDir() {
		return fmt.Errorf("%w: %s is not a folder", ErrLayout, name)
	}
	return nil
}

func (w writer) file(name string, content io.Reader) error {
	if err := w.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	to, err := w.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	_, copyErr := io.Copy(to, content)
	if err := errors.Join(copyErr, to.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (w writer) documents(top partial.Describable) error {
	switch one := top.(type) {
	case v1.ImageIndex:
		return w.index(one)
	case v1.Image:
		return w.image(one)
	}
	return fmt.Errorf("write the layout: %T is not an image", top)
}

func (w writer) index(index v1.ImageIndex) error {
	raw, err := index.RawManifest()
	if err != nil {
		return fmt.Errorf("read the index: %w", err)
	}
	if err := w.blob(raw); err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("read the index: %w", err)
	}
	for _, d := range manifest.Manifests {
		child, err := Child(index, d)
		if err != nil {
			return err
		}
		if err := w.documents(child); err != nil {
			return err
		}
	}
	return nil
}

// Child is the image or index (v1.Image or v1.ImageIndex) that a descriptor of an index names.
func Child(index v1.ImageIndex, d v1.Descriptor) (child partial.Describable, err error) {
	if d.MediaType.IsIndex() {
		child, err = index.ImageIndex(d.Digest)
	} else {
		child, err = index.Image(d.Digest)
	}
	if err != nil {
		return nil, fmt.Errorf("read the index: %w", err)
	}
	return child, nil
}

func (w writer) image(image v1.Image) error {
	raw, err := image.RawManifest()
	if err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	return errors.Join(w.blob(raw), w.blob(config))
}

func (w writer) blob(raw []byte) error {
	digest, _, err := v1.SHA256(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	return w.file(path.Join("blobs/sha256", digest.Hex), bytes.NewReader(raw))
}

func (w writer) layer(layer v1.Layer) (err error) {
	digest, err := layer.Digest()
	if err != nil {
		return fmt.Errorf("digest of a layer: %w", err)
	}
	name, err := blobPath(digest)
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return fmt.Errorf("read a layer: %w", err)
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	return w.file(name, content)
}
