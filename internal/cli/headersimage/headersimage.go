// SPDX-License-Identifier: Apache-2.0

// Package headersimage is `drover headers-image`: an image of a kernel's headers.
package headersimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/build/headers"
)

type options struct {
	genericiooptions.IOStreams
	to     string
	layout string
}

// NewCommand makes the command. It needs no cluster and no time.
func NewCommand(_ *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "headers-image PACKAGE... (--to REFERENCE | --layout FOLDER)",
		Short: "Make an image of a kernel's headers from a distribution's packages",
		Long: "Makes the image that a Module's build.native.headersImage names, from a distribution's .deb or .rpm packages of one " +
			"kernel's headers.\n" +
			"It installs nothing, and pushes with the credentials of docker or podman, or writes an OCI layout. Equal packages give an equal image.",
		Example: "  apt-get download linux-headers-6.1.0-44-amd64 linux-headers-6.1.0-44-common linux-kbuild-6.1\n" +
			"  drover headers-image *.deb --to registry.example.com/headers:6.1.0-44-amd64",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (o.to == "") == (o.layout == "") {
				return errors.New("give either --to REFERENCE or --layout FOLDER")
			}
			return o.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&o.to, "to", "", "Push the image to this reference")
	cmd.Flags().StringVar(&o.layout, "layout", "", "Write the image to this folder as an OCI layout")
	return cmd
}

// run makes the image and pushes or writes it.
func (o *options) run(ctx context.Context, packages []string) (err error) {
	dir, err := os.MkdirTemp("", "drover-headers-")
	if err != nil {
		return fmt.Errorf("make a folder to work in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made, err := headers.Make(dir, packages...)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(o.ErrOut, "headers of Linux %s for %s\n", made.Kernel, made.Architecture)
	if o.layout != "" {
		err = write(o.layout, made)
	} else {
		err = push(ctx, o.to, made)
	}
	if err != nil {
		return err
	}
	digest, err := made.Image.Digest()
	if err != nil {
		return fmt.Errorf("make the digest: %w", err)
	}
	_, _ = fmt.Fprintf(o.Out, "%s@%s\n", cmp.Or(o.layout, o.to), digest)
	return nil
}

func push(ctx context.Context, to string, made *headers.Headers) error {
	reference, err := name.ParseReference(to)
	if err != nil {
		return fmt.Errorf("read --to: %w", err)
	}
	if err := remote.Write(reference, made.Image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push the image: %w", err)
	}
	return nil
}

func write(folder string, made *headers.Headers) error {
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("make the OCI layout: %w", err)
	}
	if err := path.AppendImage(made.Image); err != nil {
		return fmt.Errorf("write the OCI layout: %w", err)
	}
	return nil
}
