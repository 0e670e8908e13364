// SPDX-License-Identifier: Apache-2.0

// Command kmod-image makes a kernel module image out of compiled modules, and
// pushes it or writes it to a file. It needs Go and nothing else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/drover-project/drover/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kmod-image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("kmod-image", flag.ContinueOnError)
	kernel := flags.String("kernel", "", "kernel the modules are for, as uname -r prints it")
	arch := flags.String("arch", runtime.GOARCH, "processor the modules are for, by Go's name")
	reference := flags.String("image", "", "the image's name and tag")
	file := flags.String("tarball", "", "write the image to this file, for docker load and ctr images import, and do not push it")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: kmod-image --kernel RELEASE --image NAME:TAG [--tarball FILE] MODULE.ko...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kernel == "" || *reference == "" || flags.NArg() == 0 {
		return errors.New("--kernel, --image and at least one module are needed")
	}
	files, err := layOut(*kernel, flags.Args())
	if err != nil {
		return err
	}
	image, err := images.KmodImage(files, *arch)
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	place := *reference
	if *file != "" {
		place = *file
		err = images.SaveTarball(*file, *reference, image)
	} else {
		err = images.Push(ctx, *reference, image)
	}
	if err != nil {
		return fmt.Errorf("store the image: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("digest of the image: %w", err)
	}
	fmt.Fprintln(out, place, digest)
	return nil
}

// layOut gives every module its path in the image.
func layOut(kernel string, modules []string) (map[string]string, error) {
	files := map[string]string{}
	for _, module := range modules {
		target := images.KmodPath(kernel, path.Join("extra", filepath.Base(module)))
		if other, taken := files[target]; taken {
			return nil, fmt.Errorf("%s and %s have one name", other, module)
		}
		files[target] = module
	}
	return files, nil
}
