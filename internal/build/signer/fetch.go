// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"fmt"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
)

// FetchCommand unpacks an image into a folder, where the node cannot mount it.
func FetchCommand() *cobra.Command {
	var registry Registry
	var image, arch, to string
	cmd := command("fetch", "Unpack an image into a folder, for a build on a node that mounts no images",
		unlessDone(func(ctx context.Context, r *result.Result) (err error) {
			if r.Digest, err = unpack(ctx, &registry, image, arch, to); err != nil {
				return fmt.Errorf("fetch %s: %w", image, err)
			}
			return nil
		}))
	registry.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&image, "image", "", "the image's reference")
	cmd.Flags().StringVar(&arch, "arch", runtime.GOARCH, "architecture")
	cmd.Flags().StringVar(&to, "to", "", "folder for the image's content; it must exist")
	require(cmd, "image", "to")
	return cmd
}

func unpack(ctx context.Context, registry *Registry, name, arch, to string) (string, error) {
	top, err := registry.fetch(ctx, name)
	if err != nil {
		return "", err
	}
	digest, err := digestOf(top)
	if err != nil {
		return "", err
	}
	image, err := forPlatform(top, arch)
	if err != nil {
		return "", err
	}
	if image == nil {
		return "", fmt.Errorf("%w: it is for several platforms, but not for linux/%s", repack.ErrRefused, arch)
	}
	return digest, repack.Unpack(ctx, image, to, repack.DefaultLimits())
}

// forPlatform is the image itself, or an index's image for the architecture, as a kubelet would
// choose it; nil where there is none.
func forPlatform(top ocidir.Manifest, arch string) (v1.Image, error) {
	if image, ok := top.(v1.Image); ok {
		return image, nil
	}
	index, ok := top.(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("%w: %T is not an image", repack.ErrRefused, top)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the index: %w", err)
	}
	wanted := v1.Platform{OS: "linux", Architecture: arch}
	for _, d := range manifest.Manifests {
		if d.Platform == nil || !d.MediaType.IsImage() || !d.Platform.Satisfies(wanted) {
			continue
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return nil, fmt.Errorf("read the image for %s: %w", wanted, err)
		}
		return image, nil
	}
	return nil, nil
}
