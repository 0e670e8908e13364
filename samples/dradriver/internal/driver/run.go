// SPDX-License-Identifier: Apache-2.0

// Package driver offers device nodes to pods by Dynamic Resource Allocation: it
// publishes them as a ResourceSlice of its node, and describes those that a
// ResourceClaim was given to the container runtime, in files as CDI has them.
package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
)

// healthService is the service that the kubelet's liveness probe asks for.
const healthService = "liveness"

// Options of a driver.
type Options struct {
	// Driver is its name, a DNS subdomain.
	Driver string
	// DeviceGlob matches the device nodes, as paths on the host.
	DeviceGlob string
	// HostRoot is the folder in which the host's root is seen.
	HostRoot string
	// Node is the node that the driver runs on.
	Node string
	// CDIDir is where the container runtime looks for descriptions of devices.
	CDIDir string
	// RegistrarDir and PluginsDir are the kubelet's folders for plugins.
	RegistrarDir, PluginsDir string
	// HealthPort is where the driver answers for its health; empty: nowhere.
	HealthPort string
	// Poll is how often devices are looked at.
	Poll time.Duration
	// Client reads ResourceClaims and writes ResourceSlices.
	Client kubernetes.Interface
}

func (o *Options) validate() error {
	switch {
	case o.Driver == "" || o.Node == "":
		return errors.New("a driver needs a name and a node (NODE_NAME)")
	case o.Poll <= 0:
		return fmt.Errorf("poll interval %s is not positive", o.Poll)
	case !filepath.IsAbs(o.CDIDir) || !filepath.IsAbs(o.PluginsDir):
		return fmt.Errorf("folders %q and %q must be absolute paths", o.CDIDir, o.PluginsDir)
	}
	return nil
}

// Run offers the devices until ctx ends. What is prepared stays prepared: the
// next driver on the node knows it by its files.
func Run(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	data := filepath.Join(o.PluginsDir, o.Driver)
	for _, dir := range []string{data, o.CDIDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
	}
	p := &plugin{options: &o, specs: specs{dir: o.CDIDir, driver: o.Driver}, fatal: cancel}
	helper, err := kubeletplugin.Start(ctx, p,
		kubeletplugin.DriverName(o.Driver), kubeletplugin.NodeName(o.Node), kubeletplugin.KubeClient(o.Client),
		kubeletplugin.RegistrarDirectoryPath(o.RegistrarDir), kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer helper.Stop()
	if o.HealthPort != "" {
		stop, err := serveHealth(ctx, net.JoinHostPort("", o.HealthPort), cancel)
		if err != nil {
			return err
		}
		defer stop()
	}
	publish(ctx, &o, helper)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// publish keeps the node's ResourceSlice current. Device nodes are polled: one
// look at a folder costs microseconds, and no event can be lost.
func publish(ctx context.Context, o *Options, helper *kubeletplugin.Helper) {
	logger := klog.FromContext(ctx)
	var published []string
	first := true
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		found, err := scan(o.HostRoot, o.DeviceGlob)
		if err != nil {
			logger.Error(err, "Scan for devices failed, keeping what is known")
			return
		}
		if !first && slices.Equal(found, published) {
			return
		}
		if err := helper.PublishResources(ctx, resources(o.Node, found)); err != nil {
			logger.Error(err, "Publishing failed, will retry")
			return
		}
		logger.Info("Published", "devices", found)
		first, published = false, found
	}, o.Poll)
}

// serveHealth answers the kubelet's liveness probe.
func serveHealth(ctx context.Context, address string, fatal context.CancelCauseFunc) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	state := health.NewServer()
	state.SetServingStatus(healthService, grpc_health_v1.HealthCheckResponse_SERVING)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	go func() {
		if err := server.Serve(listener); err != nil {
			fatal(fmt.Errorf("serve health checks: %w", err))
		}
	}()
	return server.Stop, nil
}
