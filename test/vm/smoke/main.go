// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command smoke proves that the virtual-machine tier works, without anything
// of the product: nodes of both kernels join an embedded control plane and run
// pods, mount images, load modules compiled here, and survive reboots. It
// prints how long each step took and ends with one line RESULT.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/node"
	"github.com/drover-project/drover/test/vm/registry"
)

// overall bounds a run, first builds included.
const overall = 20 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, overall)
	defer cancel()
	s := &smoke{seconds: map[string]float64{}}
	err := s.run(ctx)
	result := map[string]any{"ok": err == nil, "seconds": s.seconds, "kernels": s.kernels, "bootIDs": s.boots}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Smoke test failed")
	}
	line, encodeErr := json.Marshal(result)
	fmt.Printf("RESULT %s\n", line)
	if err != nil || encodeErr != nil {
		os.Exit(1)
	}
}

// smoke is one run.
type smoke struct {
	cache    *artifacts.Cache
	images   *artifacts.Images
	cluster  *devcluster.Cluster
	client   kubernetes.Interface
	registry *registry.Registry
	dir      string
	nodes    map[artifacts.Series]*node.Node

	seconds map[string]float64
	kernels []string
	boots   []string
}

// step is one thing to prove.
type step struct {
	name string
	do   func(context.Context) error
}

func (s *smoke) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.stop()) }()
	for _, step := range []step{
		{"artifacts", s.makeArtifacts},
		{"controlPlane", s.startControlPlane},
		{"registry", s.startRegistry},
		{"ready-6.1", func(ctx context.Context) error { return s.startNode(ctx, artifacts.Linux61, 0) }},
		{"pod", s.runPod},
		{"exec", s.execute},
		{"imageVolume", s.mountImage},
		{"modules", s.loadModule},
		{"reboot", s.reboot},
		{"storeKept", s.runWithoutRegistry},
		{"powerCut", s.cutPower},
		{"network", s.cutNetwork},
		{"ready-6.12", func(ctx context.Context) error { return s.startNode(ctx, artifacts.Linux612, 1) }},
		{"upgrade", s.upgradeKernel},
	} {
		start := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("step %s: %w", step.name, err)
		}
		took := time.Since(start).Round(10 * time.Millisecond).Seconds()
		s.seconds[step.name] = took
		klog.FromContext(ctx).Info("Step done", "step", step.name, "seconds", took)
	}
	return nil
}

// nodeName is also the name under which the API server reaches the kubelet.
func nodeName(series artifacts.Series) string { return "vm-" + string(series) }

func (s *smoke) makeArtifacts(ctx context.Context) (err error) {
	if s.cache, err = artifacts.Open(""); err != nil {
		return err
	}
	s.images, err = s.cache.Images(ctx)
	return err
}

func (s *smoke) startControlPlane(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "vm-smoke-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	names := []string{nodeName(artifacts.Linux61), nodeName(artifacts.Linux612)}
	s.cluster, err = devcluster.Start(ctx, devcluster.Options{
		Dir:              filepath.Join(s.dir, "cluster"),
		AdvertiseAddress: node.Gateway,
		ExtraSANs:        []string{node.Gateway},
		NodeHostAliases:  names,
		NodeTokens:       names,
	})
	if err != nil {
		return err
	}
	config, err := s.cluster.RESTConfig()
	if err != nil {
		return err
	}
	s.client, err = kubernetes.NewForConfig(config)
	return err
}

func (s *smoke) startNode(ctx context.Context, series artifacts.Series, index int) error {
	ca, err := os.ReadFile(s.cluster.CA)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	name := nodeName(series)
	n, err := node.Start(ctx, s.images, node.Config{
		Name: name, Index: index, Kernel: series, Dir: filepath.Join(s.dir, name),
		Server: s.cluster.Server, CA: ca, Token: s.cluster.NodeTokens[name], RegistryPort: s.registry.Port(),
	})
	if err != nil {
		return err
	}
	if s.nodes == nil {
		s.nodes = map[artifacts.Series]*node.Node{}
	}
	s.nodes[series] = n
	return s.waitReady(ctx, n)
}

// waitReady waits for the node and notes its kernel and boot ID.
func (s *smoke) waitReady(ctx context.Context, n *node.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	found, err := n.WaitReady(ctx, s.client)
	if err != nil {
		return errors.Join(err, s.logs(n))
	}
	info := found.Status.NodeInfo
	if info.KernelVersion != n.Kernel().Release {
		return fmt.Errorf("the node runs kernel %s instead of %s", info.KernelVersion, n.Kernel().Release)
	}
	s.kernels = append(s.kernels, info.KernelVersion)
	s.boots = append(s.boots, info.BootID)
	return nil
}

// logs are the ends of the guest's logs, as an error to put beside another.
func (s *smoke) logs(n *node.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	output, _, err := n.Run(ctx, "tail -n 15 /var/log/*.log")
	return errors.Join(fmt.Errorf("the guest's logs end with:\n%s", output), err)
}

func (s *smoke) stop() error {
	var errs []error
	for _, n := range s.nodes {
		errs = append(errs, n.Stop())
	}
	if s.registry != nil {
		errs = append(errs, s.registry.Down())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	if os.Getenv("KEEP") == "" && s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
