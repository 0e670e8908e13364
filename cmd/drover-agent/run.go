// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/version"
)

// runOptions are the flags of run.
type runOptions struct {
	nodeName, hostRoot, kubeletPods, stateDir, kubeconfig string
	callDeadline                                          time.Duration
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
	h, err := host.New(host.Options{Root: o.hostRoot, Command: []string{"/proc/self/exe", "kcall"}, Deadline: o.callDeadline})
	if err != nil {
		return err
	}
	st, err := store.New(ctx, filepath.Join(o.stateDir, "store"), store.Options{PodsDir: o.kubeletPods})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{
		NodeName: o.nodeName, StateDir: filepath.Join(o.stateDir, "agent"), Config: config, Host: h, Store: st,
	})
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "version", version.Version, "node", o.nodeName, "kernel", h.Release())
	return a.Run(ctx)
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
