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

func run() error {
	klog.InitFlags(nil)
	options := plugin.Options{}
	flag.StringVar(&options.Resource, "resource", "drover.dev/sample", "name of the extended resource")
	flag.StringVar(&options.DeviceGlob, "device-glob", "/dev/drover_sample*", "pattern of the device nodes on the host")
	flag.StringVar(&options.HostRoot, "host-root", "/", "folder in which the host's root is seen, in part at least")
	flag.StringVar(&options.SocketDir, "socket-dir", v1beta1.DevicePluginPath, "folder of the kubelet's device plugin sockets")
	flag.DurationVar(&options.Poll, "poll", time.Second, "how often devices and the kubelet's socket are looked at")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	logger := klog.Background()
	logger.Info("Starting device plugin", "version", version, "resource", options.Resource, "devices", options.DeviceGlob)
	return plugin.Run(klog.NewContext(ctx, logger), options)
}
