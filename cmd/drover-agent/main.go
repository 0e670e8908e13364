// SPDX-License-Identifier: Apache-2.0

// Command drover-agent is everything that runs on a node: the agent itself, what loads at boot, a
// carrier's export, the wait of plugin pods, and one kernel call in a process of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/internal/shared/version"
	"github.com/drover-project/drover/internal/shared/words"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(words.Writer(os.Stderr), "drover-agent:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	logs := textlogger.NewConfig(textlogger.Output(words.Writer(os.Stderr)))
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

// exportCommand runs in a carrier pod.
func exportCommand() *cobra.Command {
	var o export.Options
	c := &cobra.Command{
		Use: "export", Short: "Copy what a node needs out of a mounted image, then wait to be ended", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			if err := export.Run(c.Context(), o); err != nil {
				return err
			}
			// The output lives as long as the pod, so the pod must not complete.
			<-c.Context().Done()
			return nil
		},
	}
	o.AddFlags(c.Flags())
	return c
}

// waitCommand is the init container of plugin pods.
func waitCommand() *cobra.Command {
	var module, sys, root string
	var nodes, paths, values []string
	var timeout time.Duration
	c := &cobra.Command{
		Use: "wait", Short: "Wait until a kernel module is live, and device nodes and sysfs values are there", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if module == "" {
				return errors.New("--module is required")
			}
			probes, err := probesOf(nodes, paths, values)
			if err != nil {
				return err
			}
			ctx := c.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			return (&host.Prober{Root: root, Sys: sys}).AwaitReady(ctx, module, probes)
		},
	}
	c.Flags().StringVar(&module, "module", "", "name of the kernel module")
	c.Flags().StringVar(&sys, "sys", "/sys", "where sysfs is mounted")
	c.Flags().StringVar(&root, "host-root", "/host", "where the host's dev is mounted, for --device-node")
	c.Flags().StringArrayVar(&nodes, "device-node", nil, "path or pattern of a device node of the host that must exist")
	c.Flags().StringArrayVar(&paths, "sysfs", nil, "path or pattern of a file in sysfs that must exist")
	c.Flags().StringArrayVar(&values, "value", nil, "what the file of the --sysfs of the same place must hold; empty: anything")
	c.Flags().DurationVar(&timeout, "timeout", 0, "give up after this time; 0: never")
	return c
}

// probesOf pairs the flags of waitCommand.
func probesOf(nodes, paths, values []string) ([]host.Probe, error) {
	if len(values) != len(paths) {
		return nil, errors.New("--value is needed once for each --sysfs")
	}
	var probes []host.Probe
	for _, n := range nodes {
		probes = append(probes, host.Probe{DeviceNode: n})
	}
	for i, p := range paths {
		probes = append(probes, host.Probe{Sysfs: p, Value: values[i]})
	}
	return probes, nil
}

// kcallProgram is a small program beside the agent's own that does what kcallCommand does.
const kcallProgram = "drover-kcall"

// kernelCalls is the command that makes one kernel call.
func kernelCalls() []string {
	if self, err := os.Executable(); err == nil {
		program := filepath.Join(filepath.Dir(self), kcallProgram)
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() {
			return []string{program}
		}
	}
	return []string{"/proc/self/exe", "kcall"}
}

// kcallCommand is run by the agent itself where kcallProgram is missing.
func kcallCommand() *cobra.Command {
	return &cobra.Command{
		Use: "kcall", Short: "Make one kernel call: request on standard input, answer on standard output", Args: cobra.NoArgs, Hidden: true,
		RunE: func(*cobra.Command, []string) error { return kcall.Run(os.Stdin, os.Stdout) },
	}
}
