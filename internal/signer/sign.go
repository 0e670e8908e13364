// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/pipeline/result"
	"github.com/drover-project/drover/internal/repack"
	"github.com/drover-project/drover/internal/repack/ocidir"
)

// Key signs files.
type Key struct {
	// Sign writes the signed kernel module, or nothing and false if it is signed with this key already.
	Sign repack.Change
	// Signer is what others may know of it.
	Signer *result.Signer
}

// SignOptions say what to sign.
type SignOptions struct {
	// Key and Certificate are files, of mounted Secrets for example.
	Key, Certificate string
	// Files are patterns of paths in the image.
	Files []string
	// Layout is the folder of the OCI layout. The signed image takes the place of the one that is there.
	Layout string
	// Platforms that are signed, all for Linux without one.
	Platforms []string
}

// KeyReader makes a key of the contents of two files.
type KeyReader func(key, certificate []byte) (*Key, error)

// SignCommand signs the kernel modules of an image.
func SignCommand(read KeyReader) *cobra.Command {
	var c common
	var o SignOptions
	cmd := &cobra.Command{
		Use: "sign", Short: "Sign kernel modules in an OCI layout, as one added layer", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(ctx context.Context, r *result.Result) error {
				if r.Skipped = c.isDone(); r.Skipped {
					return nil
				}
				return o.sign(ctx, read, r)
			})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().StringVar(&o.Key, "key", "", "file with the private key")
	cmd.Flags().StringVar(&o.Certificate, "cert", "", "file with the certificate")
	cmd.Flags().StringArrayVar(&o.Files, "file", nil, "path in the image, or pattern of paths as in a shell; may be repeated")
	cmd.Flags().StringVar(&o.Layout, "layout", "", "folder of the OCI layout")
	cmd.Flags().StringArrayVar(&o.Platforms, "platform", nil, "platform to sign, such as linux/amd64; may be repeated (default: all for Linux)")
	require(cmd, "key", "cert", "file", "layout")
	return cmd
}

func (o SignOptions) sign(ctx context.Context, read KeyReader, r *result.Result) (err error) {
	key, err := o.readKey(read)
	if err != nil {
		return fmt.Errorf("%w: %w", errKey, err)
	}
	r.Signer = key.Signer
	platforms, err := o.platforms()
	if err != nil {
		return err
	}
	layout, err := ocidir.Open(o.Layout)
	if err != nil {
		return fmt.Errorf("%w: %w", errInvalid, err)
	}
	defer func() { err = errors.Join(err, layout.Close()) }()
	work, err := workIn(o.Layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	image, index, err := layout.Top()
	if err != nil {
		return err
	}
	ro := repack.Options{Patterns: o.Files, Change: key.Sign, Dir: work, Comment: "drover-signer sign", Limits: repack.DefaultLimits()}
	var report repack.Report
	if image != nil {
		image, report, err = repack.Image(ctx, image, ro)
	} else {
		index, report, err = repack.Index(ctx, index, platforms, ro)
	}
	if err != nil {
		return err
	}
	r.Files, r.Signed, r.Unmatched = report.Files, len(report.Files), report.Unmatched
	if len(report.Files) == 0 {
		return fmt.Errorf("%w: no file of the image is named by %q", errNothing, o.Files)
	}
	return o.write(image, index, report.Added, r)
}

func (o SignOptions) write(image v1.Image, index v1.ImageIndex, added []v1.Layer, r *result.Result) error {
	top, err := annotate(image, index, map[string]string{result.SignerAnnotation: r.Signer.Fingerprint})
	if err != nil {
		return err
	}
	if err := ocidir.Write(o.Layout, top, added); err != nil {
		return err
	}
	digest, err := top.Digest()
	if err != nil {
		return fmt.Errorf("digest of the image: %w", err)
	}
	r.Digest = digest.String()
	return nil
}

func (o SignOptions) readKey(read KeyReader) (*Key, error) {
	key, err := readFile(o.Key)
	if err != nil {
		return nil, err
	}
	certificate, err := readFile(o.Certificate)
	if err != nil {
		return nil, err
	}
	return read(key, certificate)
}

// workIn makes a folder for temporary files beside the layout's: the only place where a container of a Job may write.
func workIn(layout string) (string, error) {
	if err := os.MkdirAll(layout, 0o755); err != nil {
		return "", fmt.Errorf("make the layout: %w", err)
	}
	work, err := os.MkdirTemp(layout, ".work-")
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	return work, nil
}

func (o SignOptions) platforms() ([]v1.Platform, error) {
	var all []v1.Platform
	for _, one := range o.Platforms {
		p, err := v1.ParsePlatform(one)
		if err != nil {
			return nil, fmt.Errorf("%w: platform: %w", errInvalid, err)
		}
		all = append(all, *p)
	}
	return all, nil
}
