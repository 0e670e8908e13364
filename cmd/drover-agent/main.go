// SPDX-License-Identifier: Apache-2.0

// Command drover-agent is everything that runs on a node: the agent itself, what loads at boot, a
// carrier's export, the wait of plugin pods, and one kernel call in a process of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/drover-project/drover/internal/shared/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "drover-agent:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	logs := textlogger.NewConfig()
	c := &cobra.Command{
		Use: "drover-agent", Short: "Drover's node agent",
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
	c.AddCommand(runCommand(), bootCommand(), exportCommand(), waitCommand(), kcallCommand(), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) { c.Println(version.Version) },
	})
	c.SetOut(os.Stdout)
	return c
}
