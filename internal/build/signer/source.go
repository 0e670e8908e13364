// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/step"
)

// source says what source to copy: from the mounted ConfigMap, to a folder.
type source struct{ from, to, digest string }

// SourceCommand copies the source out of a mounted ConfigMap, which can change while the Job runs.
func SourceCommand() *cobra.Command {
	var s source
	cmd := step.Command("source", "Copy a build's source, and refuse it if it has changed since the Job was made",
		step.UnlessDone(func(context.Context, *result.Result) error { return s.copy() }))
	cmd.Flags().StringVar(&s.from, "from", "", "folder with a file per key")
	cmd.Flags().StringVar(&s.to, "to", "", "folder to copy the files to")
	cmd.Flags().StringVar(&s.digest, "digest", "", "digest that the files must have")
	step.Require(cmd, "from", "to", "digest")
	return cmd
}

func (s source) copy() error {
	entries, err := os.ReadDir(s.from)
	if err != nil {
		return fmt.Errorf("%w: list the source: %w", step.ErrInvalid, err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue // the kubelet's own, which the keys link to
		}
		if files[entry.Name()], err = os.ReadFile(filepath.Join(s.from, entry.Name())); err != nil {
			return fmt.Errorf("%w: read the source: %w", step.ErrInvalid, err)
		}
	}
	if result.SourceDigest(files) != s.digest {
		return fmt.Errorf("%w: the source's ConfigMap has changed since this Job was made", step.ErrInvalid)
	}
	for name, content := range files {
		// The build runs as another user, and its source is no secret to it.
		if err := os.WriteFile(filepath.Join(s.to, name), content, 0o644); err != nil { //nolint:gosec // see above
			return fmt.Errorf("copy the source: %w", err)
		}
	}
	return nil
}
