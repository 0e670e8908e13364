// SPDX-License-Identifier: Apache-2.0

// Package command is devcluster's own command line: start and assets.
package command

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/drover-project/drover/tools/devcluster/internal/component"
)

// New is the root command.
func New() *cobra.Command {
	component.ForgetGlobalFlags()
	root := &cobra.Command{
		Use:           "devcluster",
		Short:         "A Kubernetes control plane on loopback, from one binary",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newStart(), newAssets())
	return root
}

func newAssets() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "assets --dir DIR",
		Short: "Make a folder with the components under their names, as envtest wants for KUBEBUILDER_ASSETS",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := linkAssets(dir); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), dir)
			if err != nil {
				return fmt.Errorf("print the folder: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the folder")
	// The flag was defined in the line above.
	cobra.CheckErr(cmd.MarkFlagRequired("dir"))
	return cmd
}

// linkAssets makes dir with one symbolic link per component to this binary.
// Each appears under its name in one step: others may be using the folder.
func linkAssets(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own binary: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	for _, name := range component.Names() {
		link := filepath.Join(dir, name)
		if target, err := os.Readlink(link); err == nil && target == self {
			continue
		}
		fresh := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := os.Symlink(self, fresh); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
		if err := os.Rename(fresh, link); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}
