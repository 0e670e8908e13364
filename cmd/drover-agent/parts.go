// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
)

// nodeOptions are the flags that run and boot share.
type nodeOptions struct {
	nodeName, hostRoot, kubeletPods, stateDir, firmwareDir, kmod, manifestDir string
	callDeadline                                                              time.Duration
}

func (o *nodeOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node")
	f.StringVar(&o.hostRoot, "host-root", "/host", "where the host's proc, sys and lib/modules are mounted")
	f.StringVar(&o.stateDir, "state-dir", "/var/lib/drover", "directory of the agent's own that survives reboots")
	f.StringVar(&o.firmwareDir, "firmware-dir", firmware.DefaultDir, "directory on the host to stage firmware in; an administrator's "+
		"firmware_class.path goes first")
	f.StringVar(&o.kmod, "kmod", "/usr/bin/kmod", "kmod's program, for Modules with modprobe.args or modprobe.rawArgs; without it, these "+
		"are refused")
	f.StringVar(&o.manifestDir, "boot-manifest-dir", os.Getenv("BOOT_MANIFEST_DIR"), "the kubelet's staticPodPath as mounted here: a static "+
		"pod there loads at boot without the API server (default: none does)")
	f.DurationVar(&o.callDeadline, "kernel-call-deadline", time.Minute, "how long one load or unload may take until it is left behind")
}

// parts are everything of an agent but the API server. Only the agent that has the node's lock may
// make them.
func (o nodeOptions) parts(ctx context.Context) (agent.Options, error) {
	parts, err := o.bare(ctx)
	if err != nil {
		return parts, err
	}
	if parts.Firmware, err = o.firmware(ctx, parts.Host); err != nil {
		return parts, err
	}
	parts.Fuse, err = o.fuse(ctx)
	return parts, err
}

// bare are the parts of an agent that loads nothing.
func (o nodeOptions) bare(ctx context.Context) (agent.Options, error) {
	parts := agent.Options{NodeName: o.nodeName, StateDir: filepath.Join(o.stateDir, "agent")}
	h, err := host.New(host.Options{Root: o.hostRoot, Command: kernelCalls(), Deadline: o.callDeadline, Kmod: o.kmod})
	if err != nil {
		return parts, err
	}
	parts.Host, parts.Modprobe = h, modprobeOf(h)
	parts.Store, err = store.New(ctx, filepath.Join(o.stateDir, "store"), store.Options{PodsDir: o.kubeletPods})
	return parts, err
}

// firmware is the node's stage, or nothing on a host whose kernel has no search path.
func (o nodeOptions) firmware(ctx context.Context, h host.Host) (*firmware.Stage, error) {
	paths, ok := h.(firmware.SearchPath)
	if !ok {
		return nil, nil
	}
	boot, err := h.BootID()
	if err != nil {
		return nil, err
	}
	state := filepath.Join(o.stateDir, "firmware")
	if err := statefile.MakeDir(state); err != nil {
		return nil, err
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

// modprobeOf is what runs kmod's modprobe, or nothing where that is missing.
func modprobeOf(h host.Host) execute.Modprobe {
	program, ok := h.(interface {
		execute.Modprobe
		HasModprobe() bool
	})
	if !ok || !program.HasModprobe() {
		return nil
	}
	return program
}

func (o nodeOptions) fuse(ctx context.Context) (*fuse.Fuse, error) {
	dir := filepath.Join(o.stateDir, "fuse")
	if err := statefile.MakeDir(dir); err != nil {
		return nil, err
	}
	f, err := fuse.Open(dir, true)
	if _, aside := errors.AsType[*fuse.AsideError](err); aside {
		klog.FromContext(ctx).Error(err, "What was known of builds that took the node down is lost")
		err = nil
	}
	return f, err
}
