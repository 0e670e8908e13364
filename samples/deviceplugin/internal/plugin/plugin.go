// SPDX-License-Identifier: Apache-2.0

// Package plugin offers device nodes to the kubelet as an extended resource.
// It reads a folder of device nodes, writes one socket beside the kubelet's, and
// one file that describes the devices to the container runtime.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerTimeout bounds one registration; the kubelet answers at once or not at all.
const registerTimeout = 10 * time.Second

// Options of a device plugin.
type Options struct {
	// Resource is the extended resource's name: domain/name.
	Resource string
	// DeviceGlob matches the device nodes, as paths on the host.
	DeviceGlob string
	// Permissions of containers on their devices: r, w or rw.
	Permissions string
	// HostRoot is the folder in which the host's root is seen.
	HostRoot string
	// SocketDir is the kubelet's folder of device plugin sockets.
	SocketDir string
	// CDIDir is where the container runtime looks for descriptions of devices.
	// Without it, answers name device nodes.
	CDIDir string
	// Poll is how often devices and sockets are looked at.
	Poll time.Duration
}

// resourceForm is the form of names that the kubelet and CDI both take.
var resourceForm = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)

func (o Options) validate() error {
	switch {
	case !resourceForm.MatchString(o.Resource):
		return fmt.Errorf("resource %q is not of the form domain/name", o.Resource)
	case !slices.Contains([]string{"r", "w", "rw"}, o.Permissions):
		return fmt.Errorf("permissions %q are not r, w or rw", o.Permissions)
	case o.Poll <= 0:
		return fmt.Errorf("poll interval %s is not positive", o.Poll)
	case !filepath.IsAbs(o.SocketDir):
		return fmt.Errorf("socket folder %q is not an absolute path", o.SocketDir)
	case o.CDIDir == "":
		return nil
	}
	// Not made when it is missing: a folder of the container's own would be
	// looked at by nobody.
	if info, err := os.Stat(o.CDIDir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is no folder: mount the host's folder of CDI, or say --cdi=false", o.CDIDir)
	}
	return nil
}

// endpoint is the name of this plugin's socket.
func (o Options) endpoint() string {
	return strings.ReplaceAll(o.Resource, "/", "_") + ".sock"
}

func (o Options) ownSocket() string {
	return filepath.Join(o.SocketDir, o.endpoint())
}

func (o Options) kubeletSocket() string {
	return filepath.Join(o.SocketDir, filepath.Base(v1beta1.KubeletSocket))
}

// Run offers the devices until ctx ends, through every restart of the kubelet.
// It returns an error only for options that can never work.
func Run(ctx context.Context, options Options) error {
	if err := options.validate(); err != nil {
		return err
	}
	found, err := scan(options.HostRoot, options.DeviceGlob)
	if err != nil {
		return err
	}
	devices, described := newInventory(), &description{options: options}
	devices.update(found)
	if err := described.keep(devices.present()); err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	defer func() {
		if err := described.remove(); err != nil {
			logger.Error(err, "The description of the devices is left behind")
		}
	}()

	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { watchDevices(ctx, options, devices, described) })

	answers := &service{options: options, devices: devices, described: described, logger: logger}
	reported := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := session(ctx, options, answers)
		if err == nil {
			reported = ""
			return
		}
		// A kubelet that is down fails every try in the same way: said once.
		if reported != err.Error() {
			reported = err.Error()
			logger.Error(err, "Session with the kubelet failed, will retry", "every", options.Poll)
		}
	}, options.Poll)
	logger.Info("Stopped")
	return nil
}

// watchDevices keeps the inventory and the description current. Device nodes are
// polled: one look at a folder costs microseconds, and no event can be lost.
func watchDevices(ctx context.Context, options Options, devices *inventory, described *description) {
	logger := klog.FromContext(ctx)
	wait.UntilWithContext(ctx, func(context.Context) {
		found, err := scan(options.HostRoot, options.DeviceGlob)
		if err != nil {
			logger.Error(err, "Scan for devices failed, keeping what is known")
			return
		}
		if devices.update(found) {
			logger.Info("Devices changed", "present", found)
		}
		if err := described.keep(devices.present()); err != nil {
			logger.Error(err, "The container runtime does not know of all devices, will retry")
		}
	}, options.Poll)
}

// session serves one life of the kubelet: it listens, registers, and returns
// when the kubelet has restarted or ctx ends.
func session(ctx context.Context, options Options, answers *service) error {
	logger := klog.FromContext(ctx)
	kubelet, found := waitForSocket(ctx, options)
	if !found {
		return nil
	}
	listener, own, err := listen(ctx, options.ownSocket())
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, answers)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	// Stop, not GracefulStop: ListAndWatch never ends by itself.
	defer server.Stop()

	if err := register(ctx, options); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while registering: no failure
		}
		return err
	}
	logger.Info("Registered with the kubelet", "resource", options.Resource)
	ticker := time.NewTicker(options.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return fmt.Errorf("serve: %w", err)
		case <-ticker.C:
			// A starting kubelet removes all sockets in its folder and makes its own anew.
			if !kubelet.current() || !own.current() {
				logger.Info("The kubelet has restarted, registering again")
				return nil
			}
		}
	}
}

// waitForSocket returns the kubelet's socket once it is there, and false when
// ctx ends first.
func waitForSocket(ctx context.Context, options Options) (file, bool) {
	var kubelet file
	err := wait.PollUntilContextCancel(ctx, options.Poll, true, func(context.Context) (bool, error) {
		found, err := observe(options.kubeletSocket())
		if err == nil {
			kubelet = found
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			klog.FromContext(ctx).Error(err, "Cannot see the kubelet's socket")
		}
		return false, nil
	})
	return kubelet, err == nil
}

// listen makes this plugin's socket, in place of one that an earlier life left.
func listen(ctx context.Context, path string) (net.Listener, file, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, file{}, fmt.Errorf("remove the old socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, file{}, fmt.Errorf("listen: %w", err)
	}
	own, err := observe(path)
	if err != nil {
		return nil, file{}, errors.Join(err, listener.Close())
	}
	return listener, own, nil
}

// register tells the kubelet where this plugin listens.
func register(ctx context.Context, options Options) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+options.kubeletSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the kubelet: %w", err)
	}
	defer func() {
		if err := connection.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Close the connection to the kubelet")
		}
	}()
	_, err = v1beta1.NewRegistrationClient(connection).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     options.endpoint(),
		ResourceName: options.Resource,
		Options:      &v1beta1.DevicePluginOptions{},
	})
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	return nil
}
