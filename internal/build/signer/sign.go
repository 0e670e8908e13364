// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/build/step"
	"github.com/drover-project/drover/internal/shared/kmod/sign"
)

// signing says what to sign. The signed image replaces that of the layout.
type signing struct {
	key, certificate string
	files            []string
	layout           string
	platforms        []string
}

// SignCommand signs the kernel modules of an image.
func SignCommand(read KeyReader) *cobra.Command {
	var s signing
	cmd := step.Command("sign", "Sign kernel modules in an OCI layout, as one added layer",
		step.UnlessDone(func(ctx context.Context, r *result.Result) error { return s.sign(ctx, read, r) }))
	cmd.Flags().StringVar(&s.key, "key", "", "file with the private key")
	cmd.Flags().StringVar(&s.certificate, "cert", "", "file with the certificate")
	cmd.Flags().StringArrayVar(&s.files, "file", nil, "path in the image, or pattern of paths, as in a shell; may be repeated")
	cmd.Flags().StringVar(&s.layout, "layout", "", "folder of the OCI layout")
	cmd.Flags().StringArrayVar(&s.platforms, "platform", nil,
		"platform to sign, such as linux/amd64; may be repeated (default: all for Linux)")
	step.Require(cmd, "key", "cert", "file", "layout")
	return cmd
}

func (s signing) sign(ctx context.Context, read KeyReader, r *result.Result) (err error) {
	key, err := s.readKey(read)
	if err != nil {
		return fmt.Errorf("%w: %w", errKey, err)
	}
	r.Signer = key.Signer
	platforms, err := s.parsePlatforms()
	if err != nil {
		return err
	}
	layout, err := step.OpenLayout(s.layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, layout.Close()) }()
	work, err := workIn(s.layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	top, err := layout.Top()
	if err != nil {
		return err
	}
	o := repack.Options{Patterns: s.files, Change: key.Sign, Dir: work, Comment: "drover-signer sign", Limits: repack.DefaultLimits()}
	var report repack.Report
	if index, ok := top.(v1.ImageIndex); ok {
		top, report, err = repack.Index(ctx, index, platforms, o)
	} else if image, ok := top.(v1.Image); ok {
		top, report, err = repack.Image(ctx, image, o)
	}
	if errors.Is(err, sign.ErrNotModule) {
		return step.WithReason(err, result.ReasonNotModule)
	}
	if err != nil {
		return err
	}
	r.Files, r.Signed, r.Unmatched = report.Files, len(report.Files), report.Unmatched
	if len(report.Files) == 0 {
		return fmt.Errorf("%w: filesToSign %q matches no file of the image", errNothing, s.files)
	}
	if top, err = annotate(top, map[string]string{result.SignerAnnotation: r.Signer.Fingerprint}); err != nil {
		return err
	}
	if err := ocidir.Write(s.layout, top, report.Added); err != nil {
		return err
	}
	r.Digest, err = step.DigestOf(top)
	return err
}

func (s signing) readKey(read KeyReader) (*Key, error) {
	key, err := readFile(s.key)
	if err != nil {
		return nil, err
	}
	certificate, err := readFile(s.certificate)
	if err != nil {
		return nil, err
	}
	return read(key, certificate)
}

// workIn makes a folder for temporary files in the layout, the only place where a step may write.
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

func (s signing) parsePlatforms() ([]v1.Platform, error) {
	var all []v1.Platform
	for _, one := range s.platforms {
		p, err := v1.ParsePlatform(one)
		if err != nil {
			return nil, fmt.Errorf("%w: platform: %w", step.ErrInvalid, err)
		}
		all = append(all, *p)
	}
	return all, nil
}
