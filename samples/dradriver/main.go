// SPDX-License-Identifier: Apache-2.0

// Command dradriver offers the device nodes that match a pattern to pods by
// Dynamic Resource Allocation. It is a sample: the smallest complete DRA driver.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/samples/dradriver/internal/driver"
)

// version is set when linking.
var version = "development"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dradriver:", err)
		os.Exit(1)
	}
}

func run() error {
	klog.InitFlags(nil)
	options := driver.Options{
		// What the DaemonSet of a Module's spec.dra sets.
		Node:         os.Getenv("NODE_NAME"),
		CDIDir:       cmp.Or(os.Getenv("CDI_ROOT"), "/var/run/cdi"),
		RegistrarDir: cmp.Or(os.Getenv("KUBELET_REGISTRAR_DIRECTORY_PATH"), "/var/lib/kubelet/plugins_registry"),
		PluginsDir:   cmp.Or(os.Getenv("KUBELET_PLUGINS_DIRECTORY_PATH"), "/var/lib/kubelet/plugins"),
		HealthPort:   os.Getenv("HEALTHCHECK_PORT"),
	}
	flag.StringVar(&options.Driver, "driver-name", "sample.drover.dev", "name of the driver, as in spec.dra.driverName")
	flag.StringVar(&options.DeviceGlob, "device-glob", "/dev/drover_sample*", "pattern of the device nodes on the host")
	flag.StringVar(&options.HostRoot, "host-root", "/", "folder in which the host's root is seen, in part at least")
	flag.DurationVar(&options.Poll, "poll", time.Second, "how often devices are looked at")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	config.UserAgent = "sample-dra-driver/" + version
	if options.Client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	logger := klog.Background()
	logger.Info("Starting DRA driver", "version", version, "driver", options.Driver, "devices", options.DeviceGlob)
	return driver.Run(klog.NewContext(ctx, logger), options)
}
