// SPDX-License-Identifier: Apache-2.0

// Command deviceplugin offers the device nodes that match a pattern to pods, as
// an extended resource. It is a sample: the smallest complete device plugin.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/drover-project/drover/samples/deviceplugin/internal/plugin"
)

// version is set when linking.
var version = "development"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

// variables set flags, too. An operator sets variables rather than flags: the
// image of another device plugin does not end because of them.
var variables = map[string]string{
	"RESOURCE_NAME": "resource", "DEVICE_GLOB": "device-glob", "DEVICE_PERMISSIONS": "permissions",
	"HOST_ROOT": "host-root", "CDI": "cdi", "CDI_ROOT": "cdi-dir",
}

// fromEnvironment sets flags by variables, before the command line does.
func fromEnvironment() error {
	for variable, name := range variables {
		if value := os.Getenv(variable); value != "" {
			if err := flag.Set(name, value); err != nil {
				return fmt.Errorf("variable %s: %w", variable, err)
			}
		}
	}
	return nil
}

func run() error {
	klog.InitFlags(nil)
	options, cdi := plugin.Options{}, true
	flag.StringVar(&options.Resource, "resource", "drover.dev/sample", "name of the extended resource")
	flag.StringVar(&options.DeviceGlob, "device-glob", "/dev/drover_sample*", "pattern of the device nodes on the host")
	flag.StringVar(&options.Permissions, "permissions", "r", "what containers may do with a device: r, w or rw")
	flag.StringVar(&options.HostRoot, "host-root", "/", "folder in which the host's root is seen, in part at least")
	flag.StringVar(&options.SocketDir, "socket-dir", v1beta1.DevicePluginPath, "folder of the kubelet's device plugin sockets")
	flag.BoolVar(&cdi, "cdi", true, "answer with CDI device names; false: with device nodes, for container runtimes without CDI")
	flag.StringVar(&options.CDIDir, "cdi-dir", "/var/run/cdi", "folder in which the container runtime looks for descriptions of devices")
	flag.DurationVar(&options.Poll, "poll", time.Second, "how often devices and the kubelet's socket are looked at")
	if err := fromEnvironment(); err != nil {
		return err
	}
	flag.Parse()
	if !cdi {
		options.CDIDir = ""
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	logger := klog.Background()
	logger.Info("Starting device plugin", "version", version, "resource", options.Resource, "devices", options.DeviceGlob, "cdi", cdi)
	return plugin.Run(klog.NewContext(ctx, logger), options)
}
