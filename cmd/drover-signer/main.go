// SPDX-License-Identifier: Apache-2.0

// Command drover-signer runs the steps of an image's Job: it asks the registry, packs compiled
// files, signs and pushes. It works the same on a laptop.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	// The image holds no authorities: these apply where the system has none.
	_ "golang.org/x/crypto/x509roots/fallback"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/drover-project/drover/internal/build/examine"
	"github.com/drover-project/drover/internal/build/signer"
	"github.com/drover-project/drover/internal/shared/version"
	"github.com/drover-project/drover/internal/shared/words"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(words.Writer(os.Stderr), "drover-signer:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	logs := textlogger.NewConfig(textlogger.Output(words.Writer(os.Stderr)))
	c := &cobra.Command{
		Use: "drover-signer", Short: "Run the steps that make a kernel module image",
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		SilenceUsage:      true, SilenceErrors: true,
		PersistentPreRun: func(c *cobra.Command, _ []string) {
			logger := textlogger.NewLogger(logs)
			klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
			c.SetContext(klog.NewContext(c.Context(), logger))
		},
	}
	flags := flag.NewFlagSet("logs", flag.ContinueOnError)
	logs.AddFlags(flags)
	c.PersistentFlags().AddGoFlagSet(flags)
	c.AddCommand(signer.CheckCommand(), signer.PullCommand(), signer.FetchCommand(), signer.SourceCommand(),
		signer.PackCommand(), signer.SignCommand(signer.ReadKey), signer.PushCommand(), examine.Command(), &cobra.Command{
			Use: "version", Short: "Print the version", Args: cobra.NoArgs,
			Run: func(c *cobra.Command, _ []string) { c.Println(version.Version) },
		})
	c.SetOut(os.Stdout)
	return c
}
