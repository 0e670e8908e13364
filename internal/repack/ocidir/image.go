// SPDX-License-Identifier: Apache-2.0

package ocidir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is an image of a layout. Its layers may come from elsewhere.
type image struct {
	from     *Layout
	desc     v1.Descriptor
	raw      []byte
	manifest *v1.Manifest
	config   []byte
}

func (l *Layout) image(d v1.Descriptor) (*image, error) {
	i := &image{from: l, desc: d, manifest: &v1.Manifest{}}
	var err error
	if i.raw, err = l.document(d); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(i.raw, i.manifest); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrLayout, err)
	}
	if i.config, err = l.document(i.manifest.Config); err != nil {
		return nil, err
	}
	return i, nil
}

// RawManifest implements v1.Image.
func (i *image) RawManifest() ([]byte, error) { return i.raw, nil }

// Manifest implements v1.Image.
func (i *image) Manifest() (*v1.Manifest, error) { return i.manifest.DeepCopy(), nil }

// MediaType implements v1.Image.
func (i *image) MediaType() (types.MediaType, error) { return i.desc.MediaType, nil }

// Size implements v1.Image.
func (i *image) Size() (int64, error) { return int64(len(i.raw)), nil }

// Digest implements v1.Image.
func (i *image) Digest() (v1.Hash, error) { return i.desc.Digest, nil }

// ConfigName implements v1.Image.
func (i *image) ConfigName() (v1.Hash, error) { return i.manifest.Config.Digest, nil }

// RawConfigFile implements v1.Image.
func (i *image) RawConfigFile() ([]byte, error) { return i.config, nil }

// ConfigFile implements v1.Image.
func (i *image) ConfigFile() (*v1.ConfigFile, error) {
	config := &v1.ConfigFile{}
	if err := json.Unmarshal(i.config, config); err != nil {
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
	for _, d := range i.manifest.Layers {
		if d.Digest == digest {
			return i.from.layer(d)
		}
	}
	return nil, fmt.Errorf("%w: it has no layer %s", ErrLayout, digest)
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
	from     *Layout
	desc     v1.Descriptor
	raw      []byte
	manifest *v1.IndexManifest
}

func (l *Layout) index(d v1.Descriptor) (*index, error) {
	raw, err := l.document(d)
	if err != nil {
		return nil, err
	}
	i := &index{from: l, desc: d, raw: raw, manifest: &v1.IndexManifest{}}
	if err := json.Unmarshal(raw, i.manifest); err != nil {
		return nil, fmt.Errorf("%w: index: %w", ErrLayout, err)
	}
	return i, nil
}

// RawManifest implements v1.ImageIndex.
func (i *index) RawManifest() ([]byte, error) { return i.raw, nil }

// IndexManifest implements v1.ImageIndex.
func (i *index) IndexManifest() (*v1.IndexManifest, error) { return i.manifest.DeepCopy(), nil }

// MediaType implements v1.ImageIndex.
func (i *index) MediaType() (types.MediaType, error) { return i.desc.MediaType, nil }

// Size implements v1.ImageIndex.
func (i *index) Size() (int64, error) { return int64(len(i.raw)), nil }

// Digest implements v1.ImageIndex.
func (i *index) Digest() (v1.Hash, error) { return i.desc.Digest, nil }

// Image implements v1.ImageIndex.
func (i *index) Image(digest v1.Hash) (v1.Image, error) {
	d, err := i.child(digest)
	if err != nil {
		return nil, err
	}
	return i.from.image(d)
}

// ImageIndex implements v1.ImageIndex.
func (i *index) ImageIndex(digest v1.Hash) (v1.ImageIndex, error) {
	d, err := i.child(digest)
	if err != nil {
		return nil, err
	}
	return i.from.index(d)
}

func (i *index) child(digest v1.Hash) (v1.Descriptor, error) {
	for _, d := range i.manifest.Manifests {
		if d.Digest == digest {
			return d, nil
		}
	}
	return v1.Descriptor{}, fmt.Errorf("%w: the index has no %s", ErrLayout, digest)
}

// blob is a layer that is read from the first source that has it.
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
func (b *blob) Compressed() (io.ReadCloser, error) {
	for _, l := range b.from.withFallbacks() {
		content, err := l.open(b.desc)
		if !errors.Is(err, errAbsent) {
			return content, err
		}
	}
	return nil, fmt.Errorf("%w: the layer %s is missing", ErrLayout, b.desc.Digest)
}
