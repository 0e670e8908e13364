// SPDX-License-Identifier: Apache-2.0

package ocidir

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// document is the manifest of an image or an index.
type document struct {
	from *Layout
	desc v1.Descriptor
	raw  []byte
}

// RawManifest implements v1.Image and v1.ImageIndex.
func (d *document) RawManifest() ([]byte, error) { return d.raw, nil }

// MediaType implements v1.Image and v1.ImageIndex.
func (d *document) MediaType() (types.MediaType, error) { return d.desc.MediaType, nil }

// Size implements v1.Image and v1.ImageIndex.
func (d *document) Size() (int64, error) { return int64(len(d.raw)), nil }

// Digest implements v1.Image and v1.ImageIndex.
func (d *document) Digest() (v1.Hash, error) { return d.desc.Digest, nil }

// document reads the manifest that a descriptor names into what it is.
func (l *Layout) document(d v1.Descriptor, into any) (document, error) {
	raw, err := l.read(d)
	if err != nil {
		return document{}, err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return document{}, fmt.Errorf("%w: manifest %s: %w", ErrLayout, d.Digest, err)
	}
	return document{from: l, desc: d, raw: raw}, nil
}

// image is an image of a layout.
type image struct {
	document
	manifest *v1.Manifest
	config   []byte
}

func (l *Layout) image(d v1.Descriptor) (_ v1.Image, err error) {
	i := &image{manifest: &v1.Manifest{}}
	if i.document, err = l.document(d, i.manifest); err != nil {
		return nil, err
	}
	if i.config, err = l.read(i.manifest.Config); err != nil {
		return nil, err
	}
	return i, nil
}

// Manifest implements v1.Image.
func (i *image) Manifest() (*v1.Manifest, error) { return i.manifest.DeepCopy(), nil }

// ConfigName implements v1.Image.
func (i *image) ConfigName() (v1.Hash, error) { return i.manifest.Config.Digest, nil }

// RawConfigFile implements v1.Image.
func (i *image) RawConfigFile() ([]byte, error) { return i.config, nil }

// ConfigFile implements v1.Image.
func (i *image) ConfigFile() (*v1.ConfigFile, error) {
	config, err := partial.ConfigFile(i)
	if err != nil {
		return nil, fmt.Errorf("%w: configuration: %w", ErrLayout, err)
	}
	return config, nil
}

// Layers implements v1.Image.
func (i *image) Layers() ([]v1.Layer, error) {
	var all []v1.Layer
	for _, d := range i.manifest.Layers {
		layer, err := i.from.layer(d)
		if err != nil {
			return nil, err
		}
		all = append(all, layer)
	}
	return all, nil
}

// LayerByDigest implements v1.Image.
func (i *image) LayerByDigest(digest v1.Hash) (v1.Layer, error) {
	if digest == i.manifest.Config.Digest {
		config, err := partial.ConfigLayer(i)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		return config, nil
	}
	d, err := find(i.manifest.Layers, digest)
	if err != nil {
		return nil, err
	}
	return i.from.layer(d)
}

// LayerByDiffID implements v1.Image.
func (i *image) LayerByDiffID(id v1.Hash) (v1.Layer, error) {
	digest, err := partial.DiffIDToBlob(i, id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	return i.LayerByDigest(digest)
}

// index is an index of a layout.
type index struct {
	document
	manifest *v1.IndexManifest
}

func (l *Layout) index(d v1.Descriptor) (_ v1.ImageIndex, err error) {
	i := &index{manifest: &v1.IndexManifest{}}
	if i.document, err = l.document(d, i.manifest); err != nil {
		return nil, err
	}
	return i, nil
}

// IndexManifest implements v1.ImageIndex.
func (i *index) IndexManifest() (*v1.IndexManifest, error) { return i.manifest.DeepCopy(), nil }

// Image implements v1.ImageIndex.
func (i *index) Image(digest v1.Hash) (v1.Image, error) {
	d, err := find(i.manifest.Manifests, digest)
	if err != nil {
		return nil, err
	}
	return i.from.image(d)
}

// ImageIndex implements v1.ImageIndex.
func (i *index) ImageIndex(digest v1.Hash) (v1.ImageIndex, error) {
	d, err := find(i.manifest.Manifests, digest)
	if err != nil {
		return nil, err
	}
	return i.from.index(d)
}

func find(all []v1.Descriptor, digest v1.Hash) (v1.Descriptor, error) {
	at := slices.IndexFunc(all, func(d v1.Descriptor) bool { return d.Digest == digest })
	if at < 0 {
		return v1.Descriptor{}, fmt.Errorf("%w: the manifest does not name %s", ErrLayout, digest)
	}
	return all[at], nil
}

// blob is a layer.
type blob struct {
	desc v1.Descriptor
	from *Layout
}

// Digest implements partial.CompressedLayer.
func (b *blob) Digest() (v1.Hash, error) { return b.desc.Digest, nil }

// Size implements partial.CompressedLayer.
func (b *blob) Size() (int64, error) { return b.desc.Size, nil }

// MediaType implements partial.CompressedLayer.
func (b *blob) MediaType() (types.MediaType, error) { return b.desc.MediaType, nil }

// Descriptor keeps what else the manifest says about the layer.
func (b *blob) Descriptor() (*v1.Descriptor, error) { return b.desc.DeepCopy(), nil }

// Compressed implements partial.CompressedLayer.
func (b *blob) Compressed() (io.ReadCloser, error) { return b.from.open(b.desc) }
