// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	// The image holds no authorities: these apply where the system has none.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/drover-project/drover/internal/build/examine"
	"github.com/drover-project/drover/internal/operator"
)

// examineCommand is the step of Jobs that examine images, for installations without drover-signer:
// `drover-operator examine`. It asks no cluster.
const examineCommand = "examine"

func examineImage(ctx context.Context, args []string) error {
	root := &cobra.Command{
		Use: operator.Name, SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(examine.Command())
	root.SetArgs(append([]string{examineCommand}, args...))
	if err := root.ExecuteContext(ctx); err != nil {
		return fmt.Errorf("the step %s: %w", examineCommand, err)
	}
	return nil
}
