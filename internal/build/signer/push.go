// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/build/step"
)

// pushing says what to push where. The flags' texts say more.
type pushing struct {
	registry    step.Registry
	layout      string
	hash        string
	certificate string
	mountFrom   string
}

// PushCommand pushes an OCI layout.
func PushCommand() *cobra.Command {
	var p pushing
	cmd := step.Command("push", "Push an OCI layout, without what the registry has",
		step.UnlessDone(func(ctx context.Context, r *result.Result) error {
			if err := p.push(ctx, r); err != nil {
				return fmt.Errorf("push %s: %w", p.registry.Image, err)
			}
			return nil
		}))
	p.registry.AddFlags(cmd.Flags(), "the image's reference, with a tag")
	cmd.Flags().StringVar(&p.layout, "layout", "", "folder of the OCI layout")
	cmd.Flags().StringVar(&p.hash, "hash", "",
		"hash of the image's inputs, which becomes an annotation; without it, push overwrites any image")
	cmd.Flags().StringVar(&p.certificate, "cert", "", "file with the certificate that signed the image; its fingerprint becomes an annotation")
	cmd.Flags().StringVar(&p.mountFrom, "mount-from", "", "image in the same registry that holds most of the layers")
	step.Require(cmd, "image", "layout")
	return cmd
}

func (p *pushing) push(ctx context.Context, r *result.Result) (err error) {
	reference, options, err := p.registry.Connect(ctx)
	if err != nil {
		return err
	}
	tag, ok := reference.(name.Tag)
	if !ok {
		return fmt.Errorf("%w: push needs a tag and cannot push to a digest", step.ErrInvalid)
	}
	if r.Signer, err = readSigner(p.certificate); err != nil {
		return err
	}
	if r.State, r.Digest, err = p.present(tag, r.Signer, options); err != nil || r.State == result.StateCurrent {
		return err
	}
	layout, err := step.OpenLayout(p.layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, layout.Close()) }()
	if p.mountFrom != "" {
		from, err := p.registry.Reference(p.mountFrom)
		if err != nil {
			return err
		}
		layout.Wrap(func(layer v1.Layer) v1.Layer { return &remote.MountableLayer{Layer: layer, Reference: from} })
	}
	top, err := p.annotated(layout, r.Signer)
	if err != nil {
		return err
	}
	if err := remote.Push(tag, top, options...); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	r.Digest, err = step.DigestOf(top)
	return err
}

// present asks once more: building takes long, and others push, too, such as the pod of an earlier
// Job on a lost node. What they pushed of the same inputs stays, because nodes may have it already.
func (p *pushing) present(tag name.Tag, signer *result.Signer, options []remote.Option) (result.State, string, error) {
	if p.hash == "" {
		return "", "", nil
	}
	state, digest, err := find(tag, p.hash, signer, options)
	if err == nil && state == result.StatePrebuilt {
		err = fmt.Errorf("%w: %s", errPrebuilt, digest)
	}
	return state, digest, err
}

func (p *pushing) annotated(layout *ocidir.Layout, signer *result.Signer) (ocidir.Manifest, error) {
	top, err := layout.Top()
	if err != nil {
		return nil, err
	}
	notes := map[string]string{}
	if p.hash != "" {
		notes[result.HashAnnotation] = p.hash
	}
	if signer != nil {
		notes[result.SignerAnnotation] = signer.Fingerprint
	}
	return annotate(top, notes)
}

func annotate(top ocidir.Manifest, notes map[string]string) (ocidir.Manifest, error) {
	if len(notes) == 0 {
		return top, nil
	}
	if annotated, ok := mutate.Annotations(top, notes).(ocidir.Manifest); ok {
		return annotated, nil
	}
	return nil, errors.New("the library did not annotate the image")
}
