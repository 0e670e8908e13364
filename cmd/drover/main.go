// SPDX-License-Identifier: Apache-2.0

// Command drover is the command line tool for people who look after Modules. It also works as the kubectl plugin `kubectl drover`.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/retry"
	"github.com/drover-project/drover/internal/version"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if err := command(streams).Execute(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "drover:", err)
		os.Exit(1)
	}
}

func command(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use: "drover", Short: "Look after kernel modules on a cluster's nodes",
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.UserAgent = version.UserAgent("drover")
		return c
	})
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(retry.NewCommand(flags, streams, clock.RealClock{}), &cobra.Command{
		Use: "version", Short: "Say which version this is", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, _ = fmt.Fprintln(streams.Out, version.Version)
			return nil
		},
	})
	return root
}
