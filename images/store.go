// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Push writes an image, or an index of images, to a registry. A registry on
// loopback is spoken to without TLS. Credentials are those of docker login.
func Push(ctx context.Context, reference string, image remote.Taggable) error {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return fmt.Errorf("image reference: %w", err)
	}
	if err := remote.Push(parsed, image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push %s: %w", reference, err)
	}
	return nil
}

// SaveTarball writes a file that docker load, podman load and ctr images import
// take. They give the image the name reference.
func SaveTarball(file, reference string, image v1.Image) error {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return fmt.Errorf("image reference: %w", err)
	}
	if err := tarball.WriteToFile(file, parsed, image); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// SaveLayout writes an index of images as an OCI image layout, in place of an
// earlier one in that folder.
func SaveLayout(folder string, index v1.ImageIndex) error {
	return SaveAttested(folder, "", index, nil)
}

// tagAnnotation names an image in a layout.
const tagAnnotation = "org.opencontainers.image.ref.name"

// SaveAttested writes an index of images as SaveLayout does, with artifacts that refer to it or its
// images beside it. The tag tells tools which of them is meant.
func SaveAttested(folder, tag string, index v1.ImageIndex, referrers []v1.Image) error {
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the old layout: %w", err)
	}
	written, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	var options []layout.Option
	if tag != "" {
		options = append(options, layout.WithAnnotations(map[string]string{tagAnnotation: tag}))
	}
	if err := written.AppendIndex(index, options...); err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	for _, referrer := range referrers {
		if err := written.AppendImage(referrer); err != nil {
			return fmt.Errorf("write layout: %w", err)
		}
	}
	return nil
}

// Tag makes an image tag of a version, in which a "+" is not allowed.
func Tag(version string) string {
	return strings.ReplaceAll(version, "+", "_")
}
