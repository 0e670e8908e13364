// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/pipeline/result"
	"github.com/drover-project/drover/internal/repack"
	"github.com/drover-project/drover/internal/repack/ocidir"
)

// PullCommand brings an image that is to be signed.
func PullCommand() *cobra.Command {
	var (
		c             common
		registry      Registry
		image, layout string
	)
	cmd := &cobra.Command{
		Use: "pull", Short: "Bring an image, of all its platforms, into an OCI layout", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(ctx context.Context, r *result.Result) error {
				if r.Skipped = c.isDone(); r.Skipped {
					return nil
				}
				digest, err := pull(ctx, &registry, image, layout)
				if err != nil {
					return fmt.Errorf("pull %s: %w", image, err)
				}
				r.Digest = digest
				return nil
			})
		},
	}
	c.addFlags(cmd)
	registry.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&image, "image", "", "the image's reference")
	cmd.Flags().StringVar(&layout, "layout", "", "folder of the OCI layout")
	require(cmd, "image", "layout")
	return cmd
}

func pull(ctx context.Context, registry *Registry, image, layout string) (string, error) {
	reference, err := registry.reference(image)
	if err != nil {
		return "", err
	}
	options, err := registry.options(ctx)
	if err != nil {
		return "", err
	}
	found, err := remote.Get(reference, options...)
	if err != nil {
		return "", fmt.Errorf("ask the registry: %w", err)
	}
	var top partial.Describable
	if found.MediaType.IsIndex() {
		top, err = found.ImageIndex()
	} else {
		top, err = found.Image()
	}
	if err != nil {
		return "", fmt.Errorf("read the manifest: %w", err)
	}
	layers, err := layersOf(top)
	if err != nil {
		return "", err
	}
	return found.Digest.String(), ocidir.Write(layout, top, layers)
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
				return nil, fmt.Errorf("%w: a layer of type %q is in no registry", repack.ErrRefused, kind)
			}
		}
		return layers, nil
	}
	index, ok := top.(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("%w: %T is no image", repack.ErrRefused, top)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the index: %w", err)
	}
	var all []v1.Layer
	for _, d := range manifest.Manifests {
		var child partial.Describable
		if d.MediaType.IsIndex() {
			child, err = index.ImageIndex(d.Digest)
		} else {
			child, err = index.Image(d.Digest)
		}
		if err != nil {
			return nil, fmt.Errorf("read the index: %w", err)
		}
		more, err := layersOf(child)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}
