// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"fmt"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/pipeline/result"
	"github.com/drover-project/drover/internal/repack"
)

// FetchOptions say what image to unpack.
type FetchOptions struct {
	Registry Registry
	// Image is the reference, Arch is Go's name of the processor.
	Image, Arch string
	// To is the folder that gets the image's content.
	To string
}

// FetchCommand unpacks an image into a folder, where the node cannot mount it.
func FetchCommand() *cobra.Command {
	var c common
	var o FetchOptions
	cmd := &cobra.Command{
		Use: "fetch", Short: "Unpack an image into a folder, for a build on a node that mounts no images", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(ctx context.Context, r *result.Result) (err error) {
				if r.Skipped = c.isDone(); r.Skipped {
					return nil
				}
				if r.Digest, err = o.unpack(ctx); err != nil {
					return fmt.Errorf("fetch %s: %w", o.Image, err)
				}
				return nil
			})
		},
	}
	c.addFlags(cmd)
	o.Registry.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.Image, "image", "", "the image's reference")
	cmd.Flags().StringVar(&o.Arch, "arch", runtime.GOARCH, "processor")
	cmd.Flags().StringVar(&o.To, "to", "", "folder for the image's content; it must exist")
	require(cmd, "image", "to")
	return cmd
}

func (o *FetchOptions) unpack(ctx context.Context) (string, error) {
	image, index, err := o.Registry.fetch(ctx, o.Image)
	if err != nil {
		return "", err
	}
	digest, err := digestOf(image, index)
	if err != nil {
		return "", err
	}
	if image == nil {
		if image, err = ofPlatform(index, o.Arch); err != nil {
			return "", err
		}
	}
	if image == nil {
		return "", fmt.Errorf("%w: it is for several platforms, and not for linux/%s", repack.ErrRefused, o.Arch)
	}
	return digest, repack.Unpack(ctx, image, o.To, repack.DefaultLimits())
}

// fetch asks the registry for the image, or the index of images.
func (r *Registry) fetch(ctx context.Context, image string) (v1.Image, v1.ImageIndex, error) {
	reference, err := r.reference(image)
	if err != nil {
		return nil, nil, err
	}
	options, err := r.options(ctx)
	if err != nil {
		return nil, nil, err
	}
	found, err := remote.Get(reference, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the registry: %w", err)
	}
	if !found.MediaType.IsIndex() {
		image, err := found.Image()
		if err != nil {
			return nil, nil, fmt.Errorf("read the manifest: %w", err)
		}
		return image, nil, nil
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, nil, fmt.Errorf("read the index: %w", err)
	}
	return nil, index, nil
}

// ofPlatform is an index's image for the processor, as a kubelet would choose it; nil where there is none.
func ofPlatform(index v1.ImageIndex, arch string) (v1.Image, error) {
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
