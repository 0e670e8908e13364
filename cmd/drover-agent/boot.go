// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/boot"
	"github.com/drover-project/drover/internal/shared/version"
)

// bootCommand runs in the static pod that run writes.
func bootCommand() *cobra.Command {
	var o nodeOptions
	c := &cobra.Command{
		Use: "boot", Short: "Load what this node's record orders, without an API server, then sleep", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			klog.FromContext(c.Context()).Info("Starting", "version", version.Version, "node", o.nodeName)
			return boot.Run(c.Context(), boot.Options{StateDir: o.stateDir, ManifestDir: o.manifestDir, Work: o.boot,
				Stopped: func() error { return o.stopped(c.Context()) }})
		},
	}
	o.addFlags(c)
	return c
}

// boot works from the record. What it opened is closed before the next agent opens it.
func (o nodeOptions) boot(ctx context.Context) (err error) {
	defer debug.FreeOSMemory() // what follows is sleep
	parts, err := o.parts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Fuse.Close()) }()
	a, err := agent.New(parts)
	if err != nil {
		return err
	}
	return a.Boot(ctx)
}

// stopped tells the fuse that an orderly end of the node may follow.
func (o nodeOptions) stopped(ctx context.Context) (err error) {
	memory, err := o.fuse(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	return memory.Stop(clock.RealClock{}.Now())
}
