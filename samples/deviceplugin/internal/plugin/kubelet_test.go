// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet is the kubelet's half of the device plugin protocol, over real
// sockets: it takes registrations and dials back, as the real one does.
type kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	dir           string
	server        *grpc.Server
	registrations chan *v1beta1.RegisterRequest
}

// startKubelet empties the folder before it listens, as the real one does.
func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	leftovers, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, leftover := range leftovers {
		if err := os.Remove(leftover); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{dir: dir, server: grpc.NewServer(), registrations: make(chan *v1beta1.RegisterRequest, 8)}
	v1beta1.RegisterRegistrationServer(k.server, k)
	go func() {
		if err := k.server.Serve(listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(k.server.Stop)
	return k
}

func (k *kubelet) Register(_ context.Context, request *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	k.registrations <- request
	return &v1beta1.Empty{}, nil
}

// registered waits for the next registration.
func (k *kubelet) registered(ctx context.Context, t *testing.T) *v1beta1.RegisterRequest {
	t.Helper()
	select {
	case request := <-k.registrations:
		return request
	case <-ctx.Done():
		t.Fatal("no registration in time")
		return nil
	}
}

// dial connects to a registered plugin.
func (k *kubelet) dial(t *testing.T, request *v1beta1.RegisterRequest) v1beta1.DevicePluginClient {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+filepath.Join(k.dir, request.GetEndpoint()),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := connection.Close(); err != nil {
			t.Error(err)
		}
	})
	return v1beta1.NewDevicePluginClient(connection)
}

// next returns the next list of devices as identifier and health.
func next(t *testing.T, stream grpc.ServerStreamingClient[v1beta1.ListAndWatchResponse]) map[string]string {
	t.Helper()
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	health := map[string]string{}
	for _, device := range response.GetDevices() {
		health[device.GetID()] = device.GetHealth()
	}
	return health
}
