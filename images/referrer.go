// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// emptyConfig is the configuration of an artifact that needs none, as the image specification has
// it, and emptyType its type.
const emptyConfig = "{}"

const emptyType types.MediaType = "application/vnd.oci.empty.v1+json"

// Referrer makes an artifact of one file that tells something about subject, an image or an index
// of images. Registries list it among subject's referrers.
func Referrer(subject partial.Describable, mediaType string, content []byte, annotations map[string]string) (v1.Image, error) {
	about, err := partial.Descriptor(subject)
	if err != nil {
		return nil, fmt.Errorf("describe the image: %w", err)
	}
	config, layer := static.NewLayer([]byte(emptyConfig), emptyType), static.NewLayer(content, types.MediaType(mediaType))
	manifest := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: mediaType, Annotations: annotations,
		Subject: &v1.Descriptor{MediaType: about.MediaType, Size: about.Size, Digest: about.Digest},
	}
	for _, part := range []struct {
		layer v1.Layer
		into  func(v1.Descriptor)
	}{
		{config, func(d v1.Descriptor) { manifest.Config = d }},
		{layer, func(d v1.Descriptor) { manifest.Layers = []v1.Descriptor{d} }},
	} {
		described, err := partial.Descriptor(part.layer)
		if err != nil {
			return nil, fmt.Errorf("describe an artifact: %w", err)
		}
		part.into(*described)
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("write an artifact's manifest: %w", err)
	}
	made, err := partial.CompressedToImage(artifact{manifest: text, layer: layer})
	if err != nil {
		return nil, fmt.Errorf("make an artifact: %w", err)
	}
	return made, nil
}

// artifact is an image to go-containerregistry, whose functions that change images know no types of
// artifacts.
type artifact struct {
	manifest []byte
	layer    v1.Layer
}

// RawConfigFile is that of an artifact that needs none.
func (a artifact) RawConfigFile() ([]byte, error) { return []byte(emptyConfig), nil }

// RawManifest is the manifest as it is pushed.
func (a artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// MediaType is that of the manifest.
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// LayerByDigest finds the artifact's only file.
func (a artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	digest, err := a.layer.Digest()
	if err != nil {
		return nil, fmt.Errorf("digest of an artifact's file: %w", err)
	}
	if digest != h {
		return nil, fmt.Errorf("an artifact has no layer %s", h)
	}
	return a.layer, nil
}

// Attach pushes an artifact to the repository of a reference. Where the registry lists no
// referrers, it is added to the tag that stands for the list.
func Attach(ctx context.Context, reference string, made v1.Image) error {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return fmt.Errorf("image reference: %w", err)
	}
	digest, err := made.Digest()
	if err != nil {
		return fmt.Errorf("digest of an artifact: %w", err)
	}
	target := parsed.Context().Digest(digest.String())
	if err := remote.Push(target, made, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("attach to %s: %w", reference, err)
	}
	return nil
}
