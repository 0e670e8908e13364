// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"

	"github.com/spf13/cobra"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-project/drover/internal/pipeline/result"
	"github.com/drover-project/drover/internal/repack"
	"github.com/drover-project/drover/internal/repack/ocidir"
)

// PackOptions say what image to make of compiled files.
type PackOptions struct {
	// Artifacts is the folder that holds them.
	Artifacts string
	// Files are patterns below it.
	Files []string
	// Kernel that they are for.
	Kernel string
	// Arch is Go's name of the processor.
	Arch string
	// DirName is where the image holds lib/modules.
	DirName string
	// Layout is the folder of the OCI layout.
	Layout string
}

// PackCommand makes an image of compiled files.
func PackCommand() *cobra.Command {
	var c common
	var o PackOptions
	cmd := &cobra.Command{
		Use: "pack", Short: "Make an image of compiled kernel modules, as an OCI layout", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(_ context.Context, r *result.Result) error {
				if r.Skipped = c.isDone(); r.Skipped {
					return nil
				}
				return o.pack(r)
			})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().StringVar(&o.Artifacts, "root", "", "folder with what was compiled")
	cmd.Flags().StringArrayVar(&o.Files, "artifact", []string{"*.ko"}, "files below it, as patterns: without a slash in all folders; may be repeated")
	cmd.Flags().StringVar(&o.Kernel, "kernel", "", "version of the kernel")
	cmd.Flags().StringVar(&o.Arch, "arch", runtime.GOARCH, "processor")
	cmd.Flags().StringVar(&o.DirName, "dir-name", "/opt", "folder in the image that holds lib/modules")
	cmd.Flags().StringVar(&o.Layout, "layout", "", "folder of the OCI layout")
	require(cmd, "root", "kernel", "layout")
	return cmd
}

func (o PackOptions) pack(r *result.Result) (err error) {
	if o.Kernel != path.Base(o.Kernel) || o.Kernel == "." || o.Kernel == ".." || !path.IsAbs(o.DirName) {
		return fmt.Errorf("%w: kernel %q, directory %q", errInvalid, o.Kernel, o.DirName)
	}
	// What was compiled comes from the user's commands: no link leads out of it.
	source, err := os.OpenRoot(o.Artifacts)
	if err != nil {
		return fmt.Errorf("%w: open the artifacts: %w", errInvalid, err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	names, err := repack.Find(source.FS(), o.Files)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: no file of %q was compiled", errInvalid, o.Files)
	}
	files := map[string]string{}
	for _, one := range names {
		target := path.Join(o.DirName, "lib/modules", o.Kernel, "extra", one)
		files[target] = one
		r.Files = append(r.Files, target)
	}
	work, err := workIn(o.Layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	image, layer, err := repack.New(work, o.Arch, source.FS(), files)
	if err != nil {
		return err
	}
	if err := ocidir.Write(o.Layout, image, []v1.Layer{layer}); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("digest of the image: %w", err)
	}
	r.Digest = digest.String()
	return nil
}
