// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/pipeline/result"
)

// SourceOptions say what source to take.
type SourceOptions struct {
	// From is the mounted ConfigMap, To the folder that gets its files.
	From, To string
	// Digest that the files must have.
	Digest string
}

// SourceCommand takes the source out of a mounted ConfigMap, which can change while the Job runs.
func SourceCommand() *cobra.Command {
	var c common
	var o SourceOptions
	cmd := &cobra.Command{
		Use: "source", Short: "Copy a build's source, and refuse it if it is not the one that the build was made for", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(_ context.Context, r *result.Result) error {
				if r.Skipped = c.isDone(); r.Skipped {
					return nil
				}
				return o.take()
			})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().StringVar(&o.From, "from", "", "folder with one file per key")
	cmd.Flags().StringVar(&o.To, "to", "", "folder to copy them to")
	cmd.Flags().StringVar(&o.Digest, "digest", "", "digest that they must have")
	require(cmd, "from", "to", "digest")
	return cmd
}

func (o SourceOptions) take() error {
	entries, err := os.ReadDir(o.From)
	if err != nil {
		return fmt.Errorf("%w: list the source: %w", errInvalid, err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue // the kubelet's own, from which keys are links
		}
		if files[entry.Name()], err = os.ReadFile(filepath.Join(o.From, entry.Name())); err != nil {
			return fmt.Errorf("%w: read the source: %w", errInvalid, err)
		}
	}
	if result.SourceDigest(files) != o.Digest {
		return fmt.Errorf("%w: the source's ConfigMap has changed since this Job was made", errInvalid)
	}
	for name, content := range files {
		// What the build is made from is no secret to the build, which runs as another user.
		if err := os.WriteFile(filepath.Join(o.To, name), content, 0o644); err != nil { //nolint:gosec // see above
			return fmt.Errorf("copy the source: %w", err)
		}
	}
	return nil
}
