// SPDX-License-Identifier: Apache-2.0

package export

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/drover-project/drover/internal/agent/manifest"
)

// AddFlags binds the options to the flags that the operator writes into a carrier.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kernel, "kernel", "", "kernel version of the node")
	flags.StringVar(&o.DirName, "dir-name", defaultDirName, "directory in the image that holds lib/modules")
	flags.StringVar(&o.Module, "module", "", "kernel module to load")
	flags.StringSliceVar(&o.LoadOrder, "load-order", nil, "kernel modules from the topmost to the deepest, each of which needs the next")
	flags.StringVar(&o.FirmwarePath, "firmware-path", "", "directory in the image with firmware")
	flags.BoolVar(&o.WholeTree, "whole-tree", false, "copy the kernel's whole directory, not only what the module needs")
	flags.StringVar(&o.From, "from", "/image", "root of the image")
	flags.StringVar(&o.To, "to", "/out", "output directory")
	flags.Int64Var(&o.MaxBytes, "max-size", manifest.DefaultMaxBytes, "most bytes of all files together")
	flags.IntVar(&o.MaxFiles, "max-files", manifest.MaxFiles, "most files")
}

// Validate finds options that no image could satisfy.
func (o *Options) Validate() error {
	switch {
	case o.Kernel == "":
		return errors.New("--kernel is required")
	case o.Module == "" && !o.WholeTree:
		return errors.New("--module is required without --whole-tree")
	case o.From == "" || o.To == "":
		return errors.New("--from and --to are required")
	case o.MaxBytes < 0 || o.MaxFiles < 0:
		return errors.New("--max-size and --max-files must not be negative")
	}
	return nil
}

// Parse reads a carrier's arguments, without the command's name.
func Parse(args []string) (Options, error) {
	var o Options
	flags := pflag.NewFlagSet("export", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse arguments of export: %w", err)
	}
	return o, o.Validate()
}
