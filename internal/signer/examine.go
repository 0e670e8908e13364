// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/fit"
	"github.com/drover-project/drover/internal/pipeline/result"
	"github.com/drover-project/drover/internal/repack/ocidir"
)

// ExamineOptions say what image to look at, and for which kernel.
type ExamineOptions struct {
	Registry Registry
	// Image is the reference.
	Image string
	// Layout is the folder of an OCI layout that is looked at in its place.
	Layout string
	// Arch is Go's name of the processor.
	Arch string
	// Wish is what it is examined for.
	Wish fit.Wish
}

// unfitError says that a module of an image does not fit.
type unfitError struct{ finding fit.Finding }

func (e *unfitError) Error() string {
	if e.finding.Module == "" {
		return e.finding.Text
	}
	return fmt.Sprintf("kernel module %s, %s: %s", e.finding.Module, e.finding.Check, e.finding.Text)
}

// ExamineCommand says whether the kernel modules of an image fit a kernel.
func ExamineCommand() *cobra.Command {
	var c common
	var o ExamineOptions
	cmd := &cobra.Command{
		Use: "examine", Short: "Say whether the kernel modules of an image fit a kernel, without loading them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(ctx context.Context, r *result.Result) error {
				if c.isDone() {
					o.Layout = "" // nothing was made
				}
				err := o.examine(ctx, r)
				var unfit *unfitError
				if errors.As(err, &unfit) {
					r.Unfit = unfit.finding.Reason
					return err
				}
				if err != nil {
					return fmt.Errorf("examine %s: %w", o.Image, err)
				}
				return nil
			})
		},
	}
	c.addFlags(cmd)
	o.Registry.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.Image, "image", "", "the image's reference")
	cmd.Flags().StringVar(&o.Layout, "layout", "", "folder of an OCI layout to look at in place of the registry's image")
	cmd.Flags().StringVar(&o.Arch, "arch", runtime.GOARCH, "processor")
	cmd.Flags().StringVar(&o.Wish.Kernel, "kernel", "", "version of the kernel")
	cmd.Flags().StringVar(&o.Wish.Dir, "dir-name", "/opt", "folder in the image that holds lib/modules")
	cmd.Flags().StringVar(&o.Wish.Firmware, "firmware-path", "", "folder in the image that holds firmware")
	cmd.Flags().StringArrayVar(&o.Wish.Modules, "module", nil, "module that shall be loaded; all of the image without any; may be repeated")
	cmd.Flags().StringArrayVar(&o.Wish.Loading, "load-order", nil, "module in the order in which they are loaded; may be repeated")
	require(cmd, "image", "kernel")
	return cmd
}

func (o ExamineOptions) examine(ctx context.Context, r *result.Result) (err error) {
	var (
		image v1.Image
		index v1.ImageIndex
	)
	if o.Layout != "" {
		layout, err := ocidir.Open(o.Layout)
		if err != nil {
			return fmt.Errorf("%w: %w", errInvalid, err)
		}
		defer func() { err = errors.Join(err, layout.Close()) }()
		image, index, err = layout.Top()
		if err != nil {
			return err
		}
	} else if image, index, err = o.Registry.fetch(ctx, o.Image); err != nil {
		return err
	}
	digest, err := digestOf(image, index)
	if err != nil {
		return err
	}
	if image == nil {
		if image, err = ofPlatform(index, o.Arch); err != nil {
			return err
		}
		if image == nil {
			return &unfitError{finding: fit.Finding{
				Reason: v1beta1.ReasonPullFailed, Text: fmt.Sprintf("the image %s is for several platforms, and not for linux/%s", o.Image, o.Arch),
			}}
		}
	}
	o.Wish.Machine = o.Arch
	findings, err := fit.Look(image, o.Wish)
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.State == fit.Failed {
			return &unfitError{finding: f}
		}
	}
	r.Digest = digest
	return nil
}

func digestOf(image v1.Image, index v1.ImageIndex) (string, error) {
	var top interface{ Digest() (v1.Hash, error) } = index
	if image != nil {
		top = image
	}
	digest, err := top.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of the image: %w", err)
	}
	return digest.String(), nil
}
