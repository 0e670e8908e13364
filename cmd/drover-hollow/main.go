// SPDX-License-Identifier: Apache-2.0

// Command drover-hollow is a fleet of nodes for demos, tests and benches: a real agent for each,
// over a fake kernel, in one process. It is in no image.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/drover-project/drover/internal/agent/hollow"
	"github.com/drover-project/drover/internal/shared/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "drover-hollow:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	logs := textlogger.NewConfig()
	var o hollow.Options
	var kubeconfig string
	c := &cobra.Command{
		Use: "drover-hollow", Short: "Register nodes with fake kernels and run a real agent for each", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			logger := textlogger.NewLogger(logs)
			klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("read --kubeconfig: %w", err)
			}
			config.UserAgent = version.UserAgent("hollow-kubelet")
			config.QPS = -1 // hundreds of kubelets share it
			return hollow.Run(klog.NewContext(c.Context(), logger), config, o, os.Stdout)
		},
	}
	flags := flag.NewFlagSet("logs", flag.ContinueOnError)
	logs.AddFlags(flags)
	c.Flags().AddGoFlagSet(flags)
	o.AddFlags(c.Flags())
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file of an administrator")
	return c
}
