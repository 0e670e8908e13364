// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Index changes files of an index's images for the platforms, without any of all for Linux.
func Index(ctx context.Context, index v1.ImageIndex, platforms []v1.Platform, o Options) (v1.ImageIndex, Report, error) {
	return o.index(ctx, index, platforms, &nesting{})
}

const (
	deepest  = 3   // indexes in indexes
	mostKids = 100 // images of an index, and of all indexes in it together
)

// nesting is where in an index of indexes we are: a few small ones can name a million images.
type nesting struct{ depth, seen int }

func (o Options) index(ctx context.Context, index v1.ImageIndex, platforms []v1.Platform, at *nesting) (v1.ImageIndex, Report, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, Report{}, fmt.Errorf("read the index: %w", err)
	}
	if at.seen += len(manifest.Manifests); at.depth > deepest || at.seen > mostKids {
		return nil, Report{}, fmt.Errorf("%w: an index has %d images at depth %d", ErrRefused, at.seen, at.depth)
	}
	r := &rewritten{base: index, manifest: manifest.DeepCopy(), children: map[v1.Hash]partial.Describable{}}
	report := Report{Unmatched: slices.Clone(o.Patterns)}
	for i, d := range manifest.Manifests {
		if !wants(d, platforms) {
			continue
		}
		child, more, err := o.child(ctx, index, d, platforms, at)
		if err != nil {
			return nil, Report{}, fmt.Errorf("image %s: %w", name(d), err)
		}
		report.merge(more)
		if len(more.Changed) == 0 {
			continue
		}
		if err := r.replace(i, child); err != nil {
			return nil, Report{}, err
		}
	}
	if len(r.children) == 0 {
		return index, report, nil
	}
	return r, report, nil
}

func (o Options) child(ctx context.Context, index v1.ImageIndex, d v1.Descriptor, platforms []v1.Platform,
	at *nesting) (partial.Describable, Report, error) {
	if d.MediaType.IsIndex() {
		inner, err := index.ImageIndex(d.Digest)
		if err != nil {
			return nil, Report{}, fmt.Errorf("read the index: %w", err)
		}
		at.depth++
		defer func() { at.depth-- }()
		return o.index(ctx, inner, platforms, at)
	}
	image, err := index.Image(d.Digest)
	if err != nil {
		return nil, Report{}, fmt.Errorf("read the manifest: %w", err)
	}
	return Image(ctx, image, o)
}

// wants leaves out what is not for nodes, such as attestations, of platform "unknown".
func wants(d v1.Descriptor, platforms []v1.Platform) bool {
	if d.MediaType.IsIndex() {
		return true
	}
	if !d.MediaType.IsImage() {
		return false
	}
	if d.Platform == nil {
		return len(platforms) == 0
	}
	if len(platforms) == 0 {
		return d.Platform.OS == "linux"
	}
	return slices.ContainsFunc(platforms, func(p v1.Platform) bool { return d.Platform.Satisfies(p) })
}

func name(d v1.Descriptor) string {
	if d.Platform != nil {
		return d.Platform.String()
	}
	return d.Digest.String()
}

// rewritten is an index with some images replaced. Order, platforms and annotations stay.
type rewritten struct {
	base     v1.ImageIndex
	manifest *v1.IndexManifest
	children map[v1.Hash]partial.Describable
}

func (r *rewritten) replace(at int, child partial.Describable) error {
	d, err := partial.Descriptor(child)
	if err != nil {
		return fmt.Errorf("describe the image: %w", err)
	}
	r.manifest.Manifests[at].Digest, r.manifest.Manifests[at].Size = d.Digest, d.Size
	r.manifest.Manifests[at].Data = nil
	r.children[d.Digest] = child
	return nil
}

// IndexManifest implements v1.ImageIndex.
func (r *rewritten) IndexManifest() (*v1.IndexManifest, error) { return r.manifest, nil }

// RawManifest implements v1.ImageIndex.
func (r *rewritten) RawManifest() ([]byte, error) {
	raw, err := json.Marshal(r.manifest)
	if err != nil {
		return nil, fmt.Errorf("write the index: %w", err)
	}
	return raw, nil
}

// Digest implements v1.ImageIndex.
func (r *rewritten) Digest() (v1.Hash, error) {
	digest, err := partial.Digest(r)
	return digest, wrap("digest of the index", err)
}

// Size implements v1.ImageIndex.
func (r *rewritten) Size() (int64, error) {
	size, err := partial.Size(r)
	return size, wrap("size of the index", err)
}

// MediaType implements v1.ImageIndex.
func (r *rewritten) MediaType() (types.MediaType, error) {
	kind, err := r.base.MediaType()
	return kind, wrap("type of the index", err)
}

// Image implements v1.ImageIndex.
func (r *rewritten) Image(digest v1.Hash) (v1.Image, error) {
	if image, ok := r.children[digest].(v1.Image); ok {
		return image, nil
	}
	image, err := r.base.Image(digest)
	return image, wrap("image of the index", err)
}

// ImageIndex implements v1.ImageIndex.
func (r *rewritten) ImageIndex(digest v1.Hash) (v1.ImageIndex, error) {
	if index, ok := r.children[digest].(v1.ImageIndex); ok {
		return index, nil
	}
	index, err := r.base.ImageIndex(digest)
	return index, wrap("index in the index", err)
}
