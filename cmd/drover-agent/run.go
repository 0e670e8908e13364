// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/blacklist"
	"github.com/drover-project/drover/internal/agent/boot"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/internal/agent/place"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/agent/watchdog"
	"github.com/drover-project/drover/internal/shared/profile"
	"github.com/drover-project/drover/internal/shared/version"
)

// runOptions are the flags of run.
type runOptions struct {
	nodeOptions
	podUID, modprobeD, kubeconfig, bootImage, bootStatePath, profiles string
}

func runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use: "run", Short: "Make this node's kernel match its NodeModulesConfig", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := profile.Check(o.profiles); err != nil {
				return fmt.Errorf("--pprof-bind-address %w", err)
			}
			return o.watched(c.Context(), func() error { return o.run(c.Context()) })
		},
	}
	o.addFlags(c)
	f := c.Flags()
	f.StringVar(&o.kubeletPods, "kubelet-pods", "/var/lib/kubelet/pods", "the kubelet's pods directory")
	f.StringVar(&o.podUID, "pod-uid", os.Getenv("POD_UID"), "UID of the agent's own pod, to tell whether --kubelet-pods is this "+
		"node's kubelet's")
	f.StringVar(&o.modprobeD, "modprobe-d", "", "the host's /etc/modprobe.d, for Modules with blacklistInTree; empty: they are told that "+
		"it is missing")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's ServiceAccount)")
	f.StringVar(&o.bootImage, "boot-image", os.Getenv("BOOT_IMAGE"), "image of the static pod that loads at boot: the agent's own")
	f.StringVar(&o.bootStatePath, "boot-state-path", os.Getenv("BOOT_STATE_PATH"), "where the state directory is on the host (default: as "+
		"in --state-dir)")
	f.StringVar(&o.profiles, "pprof-bind-address", profile.Off, "loopback address of /debug/pprof, such as 127.0.0.1:6061; 0 is nowhere")
	return c
}

// run works until ctx ends. While there is no place for the state directory it only says so, and
// looks again now and then.
func (o runOptions) run(ctx context.Context) error {
	const lookAgain = 30 * time.Second
	config, err := clientConfig(o.kubeconfig, "drover-agent")
	if err != nil {
		return err
	}
	if err := profile.Serve(ctx, o.profiles); err != nil {
		// The node's network is the agent's: what else has the port must not keep it from its work.
		klog.FromContext(ctx).Error(err, "Cannot serve profiles, working on without them")
	}
	for ctx.Err() == nil {
		o.dog.Step("a look at the agent's directories")
		found := place.Look(place.Options{StateDir: o.stateDir, PodsDir: o.kubeletPods, PodUID: types.UID(o.podUID),
			MountInfo: "/proc/self/mountinfo"})
		if found.Idle == "" {
			err := o.work(ctx, config, found)
			if ctx.Err() != nil || !kcall.Lacking(err) {
				return err
			}
			found.Idle = fmt.Sprintf("the agent cannot begin its work: %v", err)
		}
		klog.FromContext(ctx).Error(nil, "Nothing is loaded or unloaded", "why", found.Idle)
		idle, stop := context.WithTimeout(ctx, lookAgain)
		err := o.idle(idle, config, found)
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// idle reports only. What it has to remember, it remembers in a directory that is thrown away.
func (o runOptions) idle(ctx context.Context, config *rest.Config, found place.Findings) error {
	// In memory, if it can be: the disk may be full.
	dir, err := os.MkdirTemp("/dev/shm", "drover-idle-")
	if err != nil {
		dir, err = os.MkdirTemp("", "drover-idle-")
	}
	if err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // thrown away with the container otherwise
	o.stateDir = dir
	parts, err := o.bare(ctx)
	if err != nil {
		return err
	}
	parts.Config, parts.Place = config, found
	a, err := agent.New(parts)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// work is alone on the node: the agent before, or the static pod's, may be in the middle of
// something.
func (o runOptions) work(ctx context.Context, config *rest.Config, found place.Findings) (err error) {
	o.dog.Rest() // another agent may be in the middle of a load
	lock, err := boot.Take(ctx, o.stateDir, "the DaemonSet's agent", clock.RealClock{})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	o.dog.Step("the start")
	if err := o.arrangeBoot(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Whether and what a boot without the API server loads is not as asked for")
	}
	for _, why := range []string{found.NoDelivery, found.Forgets} {
		if why != "" {
			klog.FromContext(ctx).Error(nil, "A directory is not what it must be", "why", why)
		}
	}
	parts, err := o.parts(ctx)
	if err != nil {
		return err
	}
	parts.Config, parts.Place = config, found
	if o.modprobeD != "" {
		parts.Blacklist = blacklist.New(o.modprobeD)
	}
	a, err := agent.New(parts)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "version", version.Version, "node", o.nodeName, "kernel", parts.Host.Release())
	return a.Run(ctx)
}

// arrangeBoot turns the static pod on or off.
func (o runOptions) arrangeBoot(ctx context.Context) error {
	if o.manifestDir == "" {
		return boot.Disable(o.stateDir)
	}
	return boot.Enable(ctx, boot.PodOptions{
		NodeName: o.nodeName, Image: o.bootImage, HostRoot: o.hostRoot, StateDir: o.stateDir, StatePath: cmp.Or(o.bootStatePath, o.stateDir),
		FirmwareDir: o.firmwareDir, ManifestDir: o.manifestDir, Args: []string{"--kernel-call-deadline=" + o.callDeadline.String(),
			"--progress-deadline=" + o.progressDeadline.String()},
	})
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

// nodeOptions are the flags that run and boot share.
type nodeOptions struct {
	nodeName, hostRoot, kubeletPods, stateDir, firmwareDir, kmod, manifestDir string
	callDeadline, progressDeadline                                            time.Duration
	dog                                                                       *watchdog.Watchdog // made by watched
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
	f.DurationVar(&o.progressDeadline, "progress-deadline", 0, "how long the agent may hang in one step until it ends itself, to be started "+
		"again; more than --kernel-call-deadline (default: 10m, or twice that deadline if it is more)")
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
	h, err := host.New(host.Options{Root: o.hostRoot, Command: kernelCalls(), Deadline: o.callDeadline, Kmod: o.kmod, Watchdog: o.dog})
	if err != nil {
		return parts, err
	}
	parts.Host, parts.Modprobe, parts.Watchdog = h, modprobeOf(h), o.dog
	parts.Store, err = store.New(ctx, filepath.Join(o.stateDir, "store"), store.Options{PodsDir: o.kubeletPods, Watchdog: o.dog})
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
	stage, err := firmware.Open(firmware.Options{Dir: o.firmwareDir, HostRoot: o.hostRoot, StateDir: state, BootID: boot, SearchPath: paths,
		Watchdog: o.dog})
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
	f, err := fuse.Open(dir, nil)
	if _, aside := errors.AsType[*fuse.AsideError](err); aside {
		klog.FromContext(ctx).Error(err, "What was known of builds that took the node down is lost")
		err = nil
	}
	return f, err
}

// bootCommand runs in the static pod that run writes.
func bootCommand() *cobra.Command {
	var o nodeOptions
	c := &cobra.Command{
		Use: "boot", Short: "Load what this node's record orders, without an API server, then sleep", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			klog.FromContext(c.Context()).Info("Starting", "version", version.Version, "node", o.nodeName)
			return o.watched(c.Context(), func() error {
				return boot.Run(c.Context(), boot.Options{StateDir: o.stateDir, ManifestDir: o.manifestDir, Work: o.boot,
					Stopped: func() error { return o.stopped(c.Context()) }})
			})
		},
	}
	o.addFlags(c)
	return c
}

// boot works from the record. What it opened is closed before the next agent opens it.
func (o nodeOptions) boot(ctx context.Context) (err error) {
	defer debug.FreeOSMemory() // what follows is sleep
	defer o.dog.Rest()
	o.dog.Step("the start")
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
