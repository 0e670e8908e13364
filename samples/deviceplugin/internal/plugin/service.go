// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// service answers the kubelet. Its methods are those of the device plugin API.
type service struct {
	v1beta1.UnimplementedDevicePluginServer
	options   Options
	devices   *inventory
	described *description
	logger    klog.Logger
}

// GetDevicePluginOptions says that the kubelet needs to ask nothing more.
func (s *service) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch sends all devices now and after every change, until the kubelet
// or this plugin goes.
func (s *service) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		devices, changed := s.devices.list()
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate answers with what each container gets: names of devices that the
// container runtime finds described, or the device nodes themselves. A device
// that is not there now is refused, so that the pod fails with a reason instead
// of starting without its device.
func (s *service) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	// Somebody may have emptied the folder since the last look.
	if err := s.described.keep(s.devices.present()); err != nil {
		return nil, status.Errorf(codes.Unavailable, "describe the devices: %v", err)
	}
	response := &v1beta1.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		answer := &v1beta1.ContainerAllocateResponse{}
		for _, id := range container.GetDevicesIds() {
			path, present := s.devices.path(id)
			if !present {
				return nil, status.Errorf(codes.NotFound, "device %q is not present", id)
			}
			s.give(answer, id, path)
		}
		s.logger.Info("Allocated", "devices", container.GetDevicesIds())
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

// give adds one device to what a container gets.
func (s *service) give(answer *v1beta1.ContainerAllocateResponse, id, path string) {
	if s.options.CDIDir != "" {
		answer.CdiDevices = append(answer.CdiDevices, &v1beta1.CDIDevice{Name: s.options.Resource + "=" + id})
		return
	}
	answer.Devices = append(answer.Devices, &v1beta1.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: s.options.Permissions})
	if answer.Envs == nil {
		answer.Envs = map[string]string{}
	}
	answer.Envs[variable(s.options.Resource, id)] = path
}
