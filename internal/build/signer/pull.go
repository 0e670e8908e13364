// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"fmt"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/build/step"
)

// PullCommand brings an image that is to be signed.
func PullCommand() *cobra.Command {
	var registry step.Registry
	var layout string
	cmd := step.Command("pull", "Bring an image, of all its platforms, into an OCI layout",
		step.UnlessDone(func(ctx context.Context, r *result.Result) (err error) {
			if r.Digest, err = pull(ctx, &registry, layout); err != nil {
				return fmt.Errorf("pull %s: %w", registry.Image, err)
			}
			return nil
		}))
	registry.AddFlags(cmd.Flags(), "the image's reference")
	cmd.Flags().StringVar(&layout, "layout", "", "folder of the OCI layout")
	step.Require(cmd, "image", "layout")
	return cmd
}

func pull(ctx context.Context, registry *step.Registry, layout string) (string, error) {
	top, err := registry.Fetch(ctx)
	if err != nil {
		return "", err
	}
	layers, err := layersOf(top)
	if err != nil {
		return "", err
	}
	if err := ocidir.Write(layout, top, layers); err != nil {
		return "", err
	}
	return step.DigestOf(top)
}

// layersOf are the layers of an image, or of all images of an index.
func layersOf(top partial.Describable) ([]v1.Layer, error) {
	if image, ok := top.(v1.Image); ok {
		layers, err := image.Layers()
		if err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		for _, layer := range layers {
			kind, err := layer.MediaType()
			if err != nil {
				return nil, fmt.Errorf("read the manifest: %w", err)
			}
			if !kind.IsDistributable() {
				return nil, fmt.Errorf("%w: registries do not hold layers of type %q", repack.ErrRefused, kind)
			}
		}
		return layers, nil
	}
	index, ok := top.(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("%w: %T is not an image", repack.ErrRefused, top)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the index: %w", err)
	}
	var all []v1.Layer
	for _, d := range manifest.Manifests {
		child, err := ocidir.Child(index, d)
		if err != nil {
			return nil, err
		}
		more, err := layersOf(child)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// FetchCommand unpacks an image into a folder, where the node cannot mount it.
func FetchCommand() *cobra.Command {
	var registry step.Registry
	var arch, to string
	cmd := step.Command("fetch", "Unpack an image into a folder, for a build on a node that mounts no images",
		step.UnlessDone(func(ctx context.Context, r *result.Result) (err error) {
			if r.Digest, err = fetch(ctx, &registry, arch, to); err != nil {
				return fmt.Errorf("fetch %s: %w", registry.Image, err)
			}
			return nil
		}))
	registry.AddFlags(cmd.Flags(), "the image's reference")
	cmd.Flags().StringVar(&arch, "arch", runtime.GOARCH, "architecture")
	cmd.Flags().StringVar(&to, "to", "", "folder for the image's content; it must exist")
	step.Require(cmd, "image", "to")
	return cmd
}

func fetch(ctx context.Context, registry *step.Registry, arch, to string) (string, error) {
	top, err := registry.Fetch(ctx)
	if err != nil {
		return "", err
	}
	digest, err := step.DigestOf(top)
	if err != nil {
		return "", err
	}
	image, err := step.ForPlatform(top, arch)
	if err != nil {
		return "", err
	}
	if image == nil {
		return "", fmt.Errorf("%w: it is for several platforms, but not for linux/%s", repack.ErrRefused, arch)
	}
	return digest, repack.Unpack(ctx, image, to, repack.DefaultLimits())
}
