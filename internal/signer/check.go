// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/pipeline/result"
)

// CheckCommand looks whether the image is there.
func CheckCommand() *cobra.Command {
	var (
		c                        common
		registry                 Registry
		image, hash, certificate string
		merged                   string
	)
	cmd := &cobra.Command{
		Use: "check", Short: "Say whether an image is in its registry: Current, Outdated, Prebuilt or Missing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(ctx context.Context, r *result.Result) error {
				var err error
				if r.Signer, err = readSigner(certificate); err != nil {
					return err
				}
				if err := registry.merge(merged); err != nil {
					return err
				}
				if err := look(ctx, &registry, image, hash, r); err != nil {
					return err
				}
				if c.state == "" || r.State != result.StateCurrent && r.State != result.StatePrebuilt {
					return nil
				}
				if err := os.WriteFile(c.done(), nil, 0o644); err != nil {
					return fmt.Errorf("tell the other steps: %w", err)
				}
				return nil
			})
		},
	}
	c.addFlags(cmd)
	registry.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&image, "image", "", "the image's reference")
	cmd.Flags().StringVar(&hash, "hash", "", "hash of the image's inputs")
	cmd.Flags().StringVar(&certificate, "cert", "", "file with the certificate that the image shall be signed with; without it, any will do")
	cmd.Flags().StringVar(&merged, "merge-auth", "", "file into which all credentials are put, for a builder that takes one file only")
	require(cmd, "image", "hash")
	return cmd
}

func require(cmd *cobra.Command, names ...string) {
	for _, one := range names {
		if err := cmd.MarkFlagRequired(one); err != nil {
			panic(err) // a flag that was not added
		}
	}
}

// look fills in the state of the image in its registry.
func look(ctx context.Context, registry *Registry, image, hash string, r *result.Result) error {
	reference, err := registry.reference(image)
	if err != nil {
		return err
	}
	options, err := registry.options(ctx)
	if err != nil {
		return err
	}
	state, digest, err := find(reference, hash, r.Signer, options)
	if err != nil {
		return fmt.Errorf("look for %s: %w", image, err)
	}
	r.State, r.Digest = state, digest
	return nil
}

// find reads the image's annotations: of the index if it is one.
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
