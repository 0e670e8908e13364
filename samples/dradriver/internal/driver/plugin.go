// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
)

// plugin is what the kubelet asks; the helper never asks two things at a time.
type plugin struct {
	options *Options
	specs   specs
	fatal   context.CancelCauseFunc
}

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p *plugin) PrepareResourceClaims(ctx context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult,
	error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := p.prepare(claim)
		klog.FromContext(ctx).Info("Prepared", "claim", klog.KObj(claim), "devices", len(devices), "err", err)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

// prepare describes a claim's devices to the container runtime. The kubelet may
// ask more than once.
func (p *plugin) prepare(claim *resourcev1.ResourceClaim) ([]kubeletplugin.Device, error) {
	present, err := scan(p.options.HostRoot, p.options.DeviceGlob)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, path := range present {
		paths[deviceName(path)] = path
	}
	var prepared []kubeletplugin.Device
	given := map[string]string{}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != p.options.Driver {
			continue
		}
		path, ok := paths[result.Device]
		if !ok {
			return nil, fmt.Errorf("device %s is not there", result.Device)
		}
		given[result.Device] = path
		prepared = append(prepared, kubeletplugin.Device{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
			CDIDeviceIDs: []string{p.specs.id(claim.UID, result.Device)},
		})
	}
	return prepared, p.specs.write(claim.UID, given)
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p *plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := p.specs.remove(claim.UID)
		klog.FromContext(ctx).Info("Unprepared", "claim", claim.NamespacedName, "err", err)
		results[claim.UID] = err
	}
	return results, nil
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (p *plugin) HandleError(ctx context.Context, err error, msg string) {
	runtime.HandleErrorWithContext(ctx, err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.fatal(fmt.Errorf("%s: %w", msg, err))
	}
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin]. A device that vanishes
// is taken out of the ResourceSlice instead.
func (*plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
