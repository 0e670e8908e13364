// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/blacklist"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/version"
)

// runOptions are the flags of run.
type runOptions struct {
	nodeName, hostRoot, kubeletPods, stateDir, firmwareDir, kmod, modprobeD, kubeconfig string
	callDeadline                                                                        time.Duration
}

func runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use: "run", Short: "Make this node's kernel match its NodeModulesConfig", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node")
	f.StringVar(&o.hostRoot, "host-root", "/host", "where the host's proc, sys and lib/modules are mounted")
	f.StringVar(&o.kubeletPods, "kubelet-pods", "/var/lib/kubelet/pods", "the kubelet's pods directory")
	f.StringVar(&o.stateDir, "state-dir", "/var/lib/drover", "directory of the agent's own that survives reboots")
	f.StringVar(&o.firmwareDir, "firmware-dir", firmware.DefaultDir, "directory on the host to stage firmware in; an administrator's firmware_class.path goes first")
	f.StringVar(&o.kmod, "kmod", "/usr/bin/kmod", "kmod's program, for Modules with modprobe.args or modprobe.rawArgs; without it, these are refused")
	f.StringVar(&o.modprobeD, "modprobe-d", "", "the host's /etc/modprobe.d, for Modules with blacklistInTree; empty: they are told that it is missing")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's ServiceAccount)")
	f.DurationVar(&o.callDeadline, "kernel-call-deadline", time.Minute, "how long one load or unload may take until it is left behind")
	return c
}

func (o runOptions) run(c *cobra.Command) error {
	ctx := c.Context()
	config, err := clientConfig(o.kubeconfig, "drover-agent")
	if err != nil {
		return err
	}
	h, err := host.New(host.Options{Root: o.hostRoot, Command: kernelCalls(), Deadline: o.callDeadline, Kmod: o.kmod})
	if err != nil {
		return err
	}
	st, err := store.New(ctx, filepath.Join(o.stateDir, "store"), store.Options{PodsDir: o.kubeletPods})
	if err != nil {
		return err
	}
	fw, err := o.firmware(ctx, h)
	if err != nil {
		return err
	}
	memory, err := o.fuse(ctx)
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{
		NodeName: o.nodeName, StateDir: filepath.Join(o.stateDir, "agent"), Config: config, Host: h, Store: st, Firmware: fw, Fuse: memory,
		Modprobe: modprobeOf(h), Blacklist: o.blacklist(),
	})
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "version", version.Version, "node", o.nodeName, "kernel", h.Release())
	return a.Run(ctx)
}

// firmware is the node's stage, or nothing on a host whose kernel has no search path.
func (o runOptions) firmware(ctx context.Context, h host.Host) (agent.Firmware, error) {
	paths, ok := h.(firmware.SearchPath)
	if !ok {
		return nil, nil
	}
	boot, err := h.BootID()
	if err != nil {
		return nil, err
	}
	state := filepath.Join(o.stateDir, "firmware")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("firmware: %w", err)
	}
	stage, err := firmware.Open(firmware.Options{Dir: o.firmwareDir, HostRoot: o.hostRoot, StateDir: state, BootID: boot, SearchPath: paths})
	if err != nil {
		return nil, err
	}
	if damage := stage.Damage(); damage != nil {
		klog.FromContext(ctx).Error(damage, "The ledger of staged firmware was lost; what is staged was found again")
	}
	return stage, nil
}

// blacklist is the host's modprobe.d, or nothing without the mount.
func (o runOptions) blacklist() agent.Blacklist {
	if o.modprobeD == "" {
		return nil
	}
	return blacklist.New(o.modprobeD)
}

// modprobeOf is what runs kmod's modprobe, or nothing where that is missing.
func modprobeOf(h host.Host) agent.Modprobe {
	program, ok := h.(interface {
		agent.Modprobe
		HasModprobe() bool
	})
	if !ok || !program.HasModprobe() {
		return nil
	}
	return program
}

// fuse opens the node's crash fuse.
func (o runOptions) fuse(ctx context.Context) (*fuse.Fuse, error) {
	dir := filepath.Join(o.stateDir, "fuse")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("fuse: %w", err)
	}
	f, err := fuse.Open(dir, true)
	var aside *fuse.AsideError
	if errors.As(err, &aside) {
		klog.FromContext(ctx).Error(err, "What was known of builds that took the node down is lost")
		err = nil
	}
	return f, err
}

// clientConfig is the pod's own, or a kubeconfig file's.
func clientConfig(kubeconfig, component string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	config.UserAgent = version.UserAgent(component)
	config.QPS = -1 // one watch and few writes: nothing to limit
	return config, nil
}
