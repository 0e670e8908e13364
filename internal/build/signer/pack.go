// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/build/step"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// packing says what image to make of which compiled files.
type packing struct {
	root      string
	artifacts []string
	kernel    string
	arch      string
	dirName   string
	layout    string
}

// PackCommand makes an image of compiled files.
func PackCommand() *cobra.Command {
	var p packing
	cmd := step.Command("pack", "Make an image of compiled kernel modules, as an OCI layout",
		step.UnlessDone(func(_ context.Context, r *result.Result) error { return p.pack(r) }))
	cmd.Flags().StringVar(&p.root, "root", "", "folder with the compiled files")
	cmd.Flags().StringArrayVar(&p.artifacts, "artifact", []string{"*.ko"},
		"pattern of files below --root: with a slash from the top, without one in every folder; may be repeated")
	cmd.Flags().StringVar(&p.kernel, "kernel", "", "version of the kernel")
	cmd.Flags().StringVar(&p.arch, "arch", runtime.GOARCH, "architecture")
	cmd.Flags().StringVar(&p.dirName, "dir-name", "/opt", "folder in the image that holds lib/modules")
	cmd.Flags().StringVar(&p.layout, "layout", "", "folder of the OCI layout")
	step.Require(cmd, "root", "kernel", "layout")
	return cmd
}

func (p packing) pack(r *result.Result) (err error) {
	if err := kernel.CheckVersion(p.kernel); err != nil {
		return fmt.Errorf("%w: --kernel: %w", step.ErrInvalid, err)
	}
	if !path.IsAbs(p.dirName) {
		return fmt.Errorf("%w: --dir-name %q is not absolute", step.ErrInvalid, p.dirName)
	}
	// The user's commands made these files: no link leads out of the folder.
	source, err := os.OpenRoot(p.root)
	if err != nil {
		return fmt.Errorf("%w: open the artifacts: %w", step.ErrInvalid, err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	names, err := repack.Find(source.FS(), p.artifacts)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: the build made no file %q: check build.native.artifacts", step.ErrInvalid, p.artifacts)
	}
	files := map[string]string{}
	for _, name := range names {
		target := path.Join(p.dirName, "lib/modules", p.kernel, "extra", name)
		files[target] = name
		r.Files = append(r.Files, target)
	}
	work, err := workIn(p.layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	image, layer, err := repack.New(work, p.arch, source.FS(), files)
	if err != nil {
		return err
	}
	if err := ocidir.Write(p.layout, image, []v1.Layer{layer}); err != nil {
		return err
	}
	r.Digest, err = step.DigestOf(image)
	return err
}
