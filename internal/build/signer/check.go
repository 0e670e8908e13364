// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/step"
)

// CheckCommand asks the registry whether it has the image.
func CheckCommand() *cobra.Command {
	var (
		registry                  step.Registry
		hash, certificate, merged string
	)
	cmd := step.Command("check", "Say whether an image is in its registry: Current, Outdated, Prebuilt or Missing",
		func(ctx context.Context, c *step.Common, r *result.Result) (err error) {
			if r.Signer, err = readSigner(certificate); err != nil {
				return err
			}
			if err := registry.Merge(merged); err != nil {
				return err
			}
			reference, options, err := registry.Connect(ctx)
			if err != nil {
				return err
			}
			if r.State, r.Digest, err = find(reference, hash, r.Signer, options); err != nil {
				return fmt.Errorf("look for %s: %w", registry.Image, err)
			}
			if !r.State.Present() {
				return nil
			}
			return c.MarkDone()
		})
	registry.AddFlags(cmd.Flags(), "the image's reference")
	cmd.Flags().StringVar(&hash, "hash", "", "hash of the image's inputs")
	cmd.Flags().StringVar(&certificate, "cert", "", "file with the certificate that must have signed the image (default: any)")
	cmd.Flags().StringVar(&merged, "merge-auth", "", "file to write all credentials to, for a builder that takes one file only")
	step.Require(cmd, "image", "hash")
	return cmd
}

// find reads the annotations of the image, or of its index.
func find(reference name.Reference, hash string, signer *result.Signer, options []remote.Option) (result.State, string, error) {
	found, err := remote.Get(reference, options...)
	var answered *transport.Error
	if errors.As(err, &answered) && answered.StatusCode == http.StatusNotFound {
		return result.StateMissing, "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("ask the registry: %w", err)
	}
	var manifest struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(found.Manifest, &manifest); err != nil {
		return "", "", fmt.Errorf("read the manifest: %w", err)
	}
	digest := found.Digest.String()
	switch ours := manifest.Annotations[result.HashAnnotation]; {
	case ours == "":
		return result.StatePrebuilt, digest, nil
	case ours != hash, signer != nil && manifest.Annotations[result.SignerAnnotation] != signer.Fingerprint:
		return result.StateOutdated, digest, nil
	}
	return result.StateCurrent, digest, nil
}
