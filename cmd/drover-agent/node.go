// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/kcall"
)

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
	var module, sys string
	var timeout time.Duration
	c := &cobra.Command{
		Use: "wait", Short: "Wait until a kernel module is live", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if module == "" {
				return errors.New("--module is required")
			}
			ctx := c.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			return host.AwaitLive(ctx, sys, module)
		},
	}
	c.Flags().StringVar(&module, "module", "", "name of the kernel module")
	c.Flags().StringVar(&sys, "sys", "/sys", "where sysfs is mounted")
	c.Flags().DurationVar(&timeout, "timeout", 0, "give up after this time; 0: never")
	return c
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
