// SPDX-License-Identifier: Apache-2.0

// Package examine is the step that says whether the kernel modules of an image fit a kernel. It
// loads and signs nothing, so that the operator's own image can have it.
package examine

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/fit"
	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/build/step"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// examination says what image to examine: the registry's, or that of the layout.
type examination struct {
	registry step.Registry
	layout   string
	wish     fit.Wish
}

// unfitError says that a module of an image does not fit.
type unfitError struct{ finding fit.Finding }

func (e *unfitError) Error() string {
	if e.finding.Module == "" {
		return e.finding.Text
	}
	return fmt.Sprintf("kernel module %s, %s: %s", e.finding.Module, e.finding.Check, e.finding.Text)
}

// Command says whether the kernel modules of an image fit a kernel.
func Command() *cobra.Command {
	var e examination
	cmd := step.Command("examine", "Say whether the kernel modules of an image fit a kernel, without loading them",
		func(ctx context.Context, c *step.Common, r *result.Result) error {
			if c.IsDone() {
				e.layout = "" // nothing was made
			}
			err := e.examine(ctx, r)
			var unfit *unfitError
			if errors.As(err, &unfit) {
				r.Unfit = unfit.finding.Reason
				return step.WithReason(err, result.ReasonUnfit)
			}
			if err != nil {
				return fmt.Errorf("examine %s: %w", e.registry.Image, err)
			}
			return nil
		})
	e.registry.AddFlags(cmd.Flags(), "the image's reference")
	cmd.Flags().StringVar(&e.layout, "layout", "", "folder of an OCI layout to examine in place of the registry's image")
	cmd.Flags().StringVar(&e.wish.Machine, "arch", runtime.GOARCH, "architecture")
	cmd.Flags().StringVar(&e.wish.Kernel, "kernel", "", "version of the kernel")
	cmd.Flags().StringVar(&e.wish.Dir, "dir-name", "/opt", "folder in the image that holds lib/modules")
	cmd.Flags().StringVar(&e.wish.Firmware, "firmware-path", "", "folder in the image that holds firmware")
	cmd.Flags().StringArrayVar(&e.wish.Modules, "module", nil, "module to load; may be repeated (default: all of the image)")
	cmd.Flags().StringArrayVar(&e.wish.Loading, "load-order", nil, "module, in load order; may be repeated")
	step.Require(cmd, "image", "kernel")
	return cmd
}

func (e *examination) examine(ctx context.Context, r *result.Result) (err error) {
	if err := kernel.CheckVersion(e.wish.Kernel); err != nil {
		return fmt.Errorf("%w: --kernel: %w", step.ErrInvalid, err)
	}
	var top ocidir.Manifest
	if e.layout == "" {
		top, err = e.registry.Fetch(ctx)
	} else {
		var layout *ocidir.Layout
		if layout, err = step.OpenLayout(e.layout); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, layout.Close()) }()
		top, err = layout.Top()
	}
	if err != nil {
		return err
	}
	digest, err := step.DigestOf(top)
	if err != nil {
		return err
	}
	image, err := step.ForPlatform(top, e.wish.Machine)
	if err != nil {
		return err
	}
	if image == nil {
		return &unfitError{finding: fit.Finding{
			Reason: v1beta1.ReasonPullFailed,
			Text:   fmt.Sprintf("image %s is for several platforms, but not for linux/%s", e.registry.Image, e.wish.Machine),
		}}
	}
	findings, err := fit.Look(ctx, image, e.wish)
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
