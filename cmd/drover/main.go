// SPDX-License-Identifier: Apache-2.0

// Command drover is the command line tool for people who look after Modules. It also works as the kubectl plugin `kubectl drover`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/cli/retry"
	"github.com/drover-project/drover/internal/version"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, tell := 0, false
	err := command(os.Args[0], streams).ExecuteContext(ctx)
	if code, tell = exit.Code(err); tell {
		_, _ = fmt.Fprintln(os.Stderr, "drover:", err)
	}
	os.Exit(code)
}

func command(called string, streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use: "drover", Short: "Look after kernel modules on a cluster's nodes",
		Long: "Look after kernel modules on a cluster's nodes.\n\n" +
			"The same program works as a kubectl plugin: put it into the PATH as kubectl-drover, and call it as `kubectl drover`.\n\n" +
			"Exit codes: 0 all is well, 1 something is not as asked, 2 the command could not do its work.",
		SilenceErrors: true, SilenceUsage: true,
	}
	if strings.HasPrefix(filepath.Base(called), "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl drover"}
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.UserAgent = version.UserAgent("drover")
		return c
	})
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(
		explain.NewCommand(flags, streams, clock.RealClock{}),
		retry.NewCommand(flags, streams, clock.RealClock{}),
		&cobra.Command{
			Use: "version", Short: "Say which version this is", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				_, _ = fmt.Fprintln(streams.Out, version.Version)
				return nil
			},
		})
	return root
}
