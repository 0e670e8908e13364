// SPDX-License-Identifier: Apache-2.0

// Package variants opens an image, wherever it lies, for each of its platforms.
package variants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Variant is the image for one platform, or a folder that stands for an image's root.
type Variant struct {
	Platform string
	// Machine is the architecture in Go's words; empty when unknown.
	Machine string
	// Image is nil for a folder.
	Image  v1.Image
	Folder string
	// Digests are those by which the image may be named: its own, and those of the indexes around it.
	Digests []v1.Hash
}

// Open reads a folder (an OCI layout or an image's root), a `docker save` archive, or a reference.
func Open(ctx context.Context, image, platform string) ([]Variant, error) {
	info, err := os.Stat(image)
	switch {
	case err == nil && info.IsDir():
		if _, err := os.Stat(filepath.Join(image, "oci-layout")); err != nil {
			return []Variant{{Platform: "folder " + image, Folder: image}}, nil
		}
		index, err := layout.ImageIndexFromPath(image)
		if err != nil {
			return nil, fmt.Errorf("read the OCI layout %s: %w", image, err)
		}
		return fromIndex(index, platform)
	case err == nil:
		one, err := tarball.ImageFromPath(image, nil)
		if err != nil {
			return nil, fmt.Errorf("read the archive %s: %w", image, err)
		}
		return fromImage(one, platform)
	case strings.HasPrefix(image, "/") || strings.HasPrefix(image, "."):
		return nil, fmt.Errorf("open the image: %w", err)
	}
	return fromRegistry(ctx, image, platform)
}

// fromRegistry uses the credentials of docker or podman.
func fromRegistry(ctx context.Context, image, platform string) ([]Variant, error) {
	reference, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("there is no file of that name, and as an image: %w", err)
	}
	found, err := remote.Get(reference, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return nil, fmt.Errorf("get the image from its registry: %w", err)
	}
	if found.MediaType.IsIndex() {
		index, err := found.ImageIndex()
		if err != nil {
			return nil, fmt.Errorf("read the image's index: %w", err)
		}
		return fromIndex(index, platform)
	}
	one, err := found.Image()
	if err != nil {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	return fromImage(one, platform)
}

func fromImage(image v1.Image, platform string) ([]Variant, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, fmt.Errorf("read the image's manifest: %w", err)
	}
	return only([]Variant{{
		Platform: config.OS + "/" + config.Architecture, Machine: config.Architecture, Image: image, Digests: []v1.Hash{digest},
	}}, platform)
}

// fromIndex takes the images of all platforms, also of nested indexes.
func fromIndex(index v1.ImageIndex, platform string) ([]Variant, error) {
	seen := 0
	all, err := variantsOf(index, &seen, 0)
	if err != nil {
		return nil, err
	}
	return only(all, platform)
}

const (
	deepest    = 3   // indexes in indexes
	mostImages = 100 // images of an index, and of all indexes in it together
)

func variantsOf(index v1.ImageIndex, seen *int, depth int) ([]Variant, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the image's index: %w", err)
	}
	// A few small indexes can name a million images.
	if *seen += len(manifest.Manifests); *seen > mostImages || depth > deepest {
		return nil, fmt.Errorf("the image's index names more than %d images, or nests deeper than %d indexes", mostImages, deepest)
	}
	digest, err := index.Digest()
	if err != nil {
		return nil, fmt.Errorf("read the image's index: %w", err)
	}
	var all []Variant
	for _, d := range manifest.Manifests {
		switch {
		case d.MediaType.IsIndex():
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, fmt.Errorf("read the image's index: %w", err)
			}
			more, err := variantsOf(inner, seen, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		case d.MediaType.IsImage() && (d.Platform == nil || d.Platform.OS == "linux" || d.Platform.OS == ""):
			image, err := index.Image(d.Digest)
			if err != nil {
				return nil, fmt.Errorf("read the image: %w", err)
			}
			more, err := fromImage(image, "")
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	}
	for i := range all {
		all[i].Digests = append(all[i].Digests, digest)
	}
	return all, nil
}

// OtherPlatformError says that the image is for other platforms only.
type OtherPlatformError struct {
	platform string
	has      []string
}

func (e *OtherPlatformError) Error() string {
	return fmt.Sprintf("the image is not for %s, only for %s", e.platform, strings.Join(e.has, ", "))
}

func only(all []Variant, platform string) ([]Variant, error) {
	var kept []Variant
	var names []string
	for _, v := range all {
		names = append(names, v.Platform)
		if platform == "" || v.Platform == platform {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 && platform != "" {
		return nil, &OtherPlatformError{platform: platform, has: names}
	}
	if len(kept) == 0 {
		return nil, errors.New("the index names no image for Linux")
	}
	return kept, nil
}
