// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
)

// PullCommand brings an image that is to be signed.
func PullCommand() *cobra.Command {
	var registry Registry
	var image, layout string
	cmd := command("pull", "Bring an image, of all its platforms, into an OCI layout",
		unlessDone(func(ctx context.Context, r *result.Result) (err error) {
			if r.Digest, err = pull(ctx, &registry, image, layout); err != nil {
				return fmt.Errorf("pull %s: %w", image, err)
			}
			return nil
		}))
	registry.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&image, "image", "", "the image's reference")
	cmd.Flags().StringVar(&layout, "layout", "", "folder of the OCI layout")
	require(cmd, "image", "layout")
	return cmd
}

func pull(ctx context.Context, registry *Registry, image, layout string) (string, error) {
	top, err := registry.fetch(ctx, image)
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
	return digestOf(top)
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
