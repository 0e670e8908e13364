// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/agent/hollow"
)

// hollowCommand runs agents by the hundred.
func hollowCommand() *cobra.Command {
	var o hollow.Options
	var kubeconfig string
	c := &cobra.Command{
		Use: "hollow", Short: "Register nodes with fake kernels and run a real agent for each", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := clientConfig(kubeconfig, "hollow-kubelet")
			if err != nil {
				return err
			}
			return hollow.Run(c.Context(), config, o, os.Stdout)
		},
	}
	o.AddFlags(c.Flags())
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file of an administrator")
	return c
}
