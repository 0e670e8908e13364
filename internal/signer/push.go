// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/pipeline/result"
	"github.com/drover-project/drover/internal/repack/ocidir"
)

// PushOptions say what to push, and where.
type PushOptions struct {
	Registry Registry
	// Image is the reference: a tag.
	Image string
	// Layout is the folder of the OCI layout.
	Layout string
	// Hash of the inputs becomes an annotation. Without one the image is not ours: it is pushed as it is, over whatever is there.
	Hash string
	// Certificate is a file with the certificate that signed; its fingerprint becomes an annotation.
	Certificate string
	// MountFrom is an image in the same registry whose layers need not be sent again.
	MountFrom string
}

// PushCommand pushes an OCI layout.
func PushCommand() *cobra.Command {
	var c common
	var o PushOptions
	cmd := &cobra.Command{
		Use: "push", Short: "Push an OCI layout; what the registry has is not sent again", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(ctx context.Context, r *result.Result) error {
				if r.Skipped = c.isDone(); r.Skipped {
					return nil
				}
				if err := o.push(ctx, r); err != nil {
					return fmt.Errorf("push %s: %w", o.Image, err)
				}
				return nil
			})
		},
	}
	c.addFlags(cmd)
	o.Registry.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.Image, "image", "", "the image's reference, with a tag")
	cmd.Flags().StringVar(&o.Layout, "layout", "", "folder of the OCI layout")
	cmd.Flags().StringVar(&o.Hash, "hash", "", "hash of the image's inputs, which becomes an annotation; without it, whatever is there is overwritten")
	cmd.Flags().StringVar(&o.Certificate, "cert", "", "file with the certificate that the image was signed with, whose fingerprint becomes an annotation")
	cmd.Flags().StringVar(&o.MountFrom, "mount-from", "", "an image in the same registry that holds most of the layers")
	require(cmd, "image", "layout")
	return cmd
}

func (o PushOptions) push(ctx context.Context, r *result.Result) (err error) {
	reference, err := o.Registry.reference(o.Image)
	if err != nil {
		return err
	}
	tag, ok := reference.(name.Tag)
	if !ok {
		return fmt.Errorf("%w: a digest cannot be pushed to, only a tag", errInvalid)
	}
	options, err := o.Registry.options(ctx)
	if err != nil {
		return err
	}
	if r.Signer, err = readSigner(o.Certificate); err != nil {
		return err
	}
	if r.State, r.Digest, err = o.present(tag, r.Signer, options); err != nil || r.State == result.StateCurrent {
		return err
	}
	layout, err := ocidir.Open(o.Layout)
	if err != nil {
		return fmt.Errorf("%w: %w", errInvalid, err)
	}
	defer func() { err = errors.Join(err, layout.Close()) }()
	if o.MountFrom != "" {
		from, err := o.Registry.reference(o.MountFrom)
		if err != nil {
			return err
		}
		layout.Wrap(func(layer v1.Layer) v1.Layer { return &remote.MountableLayer{Layer: layer, Reference: from} })
	}
	top, err := o.annotated(layout, r.Signer)
	if err != nil {
		return err
	}
	if err := remote.Push(tag, top, options...); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	d, err := partial.Descriptor(top)
	if err != nil {
		return fmt.Errorf("digest of the image: %w", err)
	}
	r.Digest = d.Digest.String()
	return nil
}

// present asks once more, for building takes long, and others push, too: the pod of an earlier Job among them, that was on a lost node. What they
// pushed of the same inputs stays, for nodes may have it already.
func (o PushOptions) present(tag name.Tag, signer *result.Signer, options []remote.Option) (result.State, string, error) {
	if o.Hash == "" {
		return "", "", nil
	}
	state, digest, err := find(tag, o.Hash, signer, options)
	if err == nil && state == result.StatePrebuilt {
		err = fmt.Errorf("%w: %s", errPrebuilt, digest)
	}
	return state, digest, err
}

// pushable is an image or an index.
type pushable interface {
	partial.Describable
	remote.Taggable
}

func (o PushOptions) annotated(layout *ocidir.Layout, signer *result.Signer) (pushable, error) {
	image, index, err := layout.Top()
	if err != nil {
		return nil, err
	}
	notes := map[string]string{}
	if o.Hash != "" {
		notes[result.HashAnnotation] = o.Hash
	}
	if signer != nil {
		notes[result.SignerAnnotation] = signer.Fingerprint
	}
	return annotate(image, index, notes)
}

func annotate(image v1.Image, index v1.ImageIndex, notes map[string]string) (pushable, error) {
	switch {
	case len(notes) == 0 && image != nil:
		return image, nil
	case len(notes) == 0:
		return index, nil
	}
	if image != nil {
		if one, ok := mutate.Annotations(image, notes).(v1.Image); ok {
			return one, nil
		}
	}
	if index != nil {
		if all, ok := mutate.Annotations(index, notes).(v1.ImageIndex); ok {
			return all, nil
		}
	}
	return nil, errors.New("the library did not annotate the image")
}
