// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// host is a root folder with device nodes: links to /dev/null, because making a
// node needs privilege and only its being a device is looked at.
type host struct{ root string }

func newHost(t *testing.T, names ...string) host {
	t.Helper()
	h := host{root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(h.root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		h.add(t, name)
	}
	return h
}

func (h host) add(t *testing.T, name string) {
	t.Helper()
	if err := os.Symlink(os.DevNull, filepath.Join(h.root, "dev", name)); err != nil {
		t.Fatal(err)
	}
}

func (h host) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(h.root, "dev", name)); err != nil {
		t.Fatal(err)
	}
}

// socketDir is a folder whose name is short enough for a socket's address.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// options of a plugin on h, with the kubelet's sockets in dir, without CDI.
func options(h host, dir string) Options {
	return Options{Resource: "drover.dev/sample", DeviceGlob: "/dev/drover_sample*", Permissions: "rw",
		HostRoot: h.root, SocketDir: dir, Poll: 10 * time.Millisecond}
}

// start runs the plugin and returns what stops it and waits for its end.
func start(ctx context.Context, t *testing.T, o Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, ktesting.NewLogger(t, ktesting.NewConfig())))
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestPluginRegistersListsAndAllocates(t *testing.T) {
	ctx := deadline(t)
	h := newHost(t, "drover_sample0", "unrelated")
	if err := os.WriteFile(filepath.Join(h.root, "dev", "drover_sample_file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dir := socketDir(t)
	k := startKubelet(t, dir)
	stop := start(ctx, t, options(h, dir))

	request := k.registered(ctx, t)
	want := &v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "drover.dev_sample.sock", ResourceName: "drover.dev/sample",
		Options: &v1beta1.DevicePluginOptions{}}
	if diff := cmp.Diff(want, request, protocmp.Transform()); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}
	client := k.dial(t, request)
	stream, err := client.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		given string
		do    func()
		then  map[string]string
	}{
		{"only device nodes that match are listed", func() {}, map[string]string{"drover_sample0": "Healthy"}},
		{"a device appears", func() { h.add(t, "drover_sample1") },
			map[string]string{"drover_sample0": "Healthy", "drover_sample1": "Healthy"}},
		{"a device vanishes", func() { h.remove(t, "drover_sample0") },
			map[string]string{"drover_sample0": "Unhealthy", "drover_sample1": "Healthy"}},
		{"it comes back", func() { h.add(t, "drover_sample0") },
			map[string]string{"drover_sample0": "Healthy", "drover_sample1": "Healthy"}},
		{"another vanishes", func() { h.remove(t, "drover_sample1") },
			map[string]string{"drover_sample0": "Healthy", "drover_sample1": "Unhealthy"}},
	} {
		step.do()
		if diff := cmp.Diff(step.then, next(t, stream)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.given, diff)
		}
	}

	checkAllocate(ctx, t, client)

	stop()
	if _, err := os.Lstat(filepath.Join(dir, request.GetEndpoint())); !os.IsNotExist(err) {
		t.Errorf("the plugin's socket is still there after its end: %v", err)
	}
}

// checkAllocate expects drover_sample0 present and drover_sample1 gone.
func checkAllocate(ctx context.Context, t *testing.T, client v1beta1.DevicePluginClient) {
	t.Helper()
	got, err := client.Allocate(ctx, &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{
		{DevicesIds: []string{"drover_sample0"}},
		{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{
		{
			Devices: []*v1beta1.DeviceSpec{{ContainerPath: "/dev/drover_sample0", HostPath: "/dev/drover_sample0", Permissions: "rw"}},
			Envs:    map[string]string{"sample_drover_sample0": "/dev/drover_sample0"},
		},
		{},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("allocation (-want +got):\n%s", diff)
	}
	for given, id := range map[string]string{"a device that is gone": "drover_sample1", "one that never was": "../null"} {
		_, err := client.Allocate(ctx, &v1beta1.AllocateRequest{
			ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{id}}}})
		if status.Code(err) != codes.NotFound {
			t.Errorf("%s: error %v, want NotFound", given, err)
		}
	}
}

func TestPluginWaitsForTheKubeletAndRegistersAgainAfterItsRestart(t *testing.T) {
	ctx := deadline(t)
	h := newHost(t, "drover_sample0")
	dir := socketDir(t)
	start(ctx, t, options(h, dir))

	first := startKubelet(t, dir)
	request := first.registered(ctx, t)
	stream, err := first.dial(t, request).ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	next(t, stream)

	first.server.Stop()
	second := startKubelet(t, dir)
	request = second.registered(ctx, t)
	stream, err = second.dial(t, request).ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"drover_sample0": "Healthy"}, next(t, stream)); diff != "" {
		t.Errorf("devices after the restart (-want +got):\n%s", diff)
	}
}

func TestPluginListensAgainWhenOnlyItsSocketIsRemoved(t *testing.T) {
	ctx := deadline(t)
	dir := socketDir(t)
	k := startKubelet(t, dir)
	start(ctx, t, options(newHost(t), dir))

	request := k.registered(ctx, t)
	if err := os.Remove(filepath.Join(dir, request.GetEndpoint())); err != nil {
		t.Fatal(err)
	}
	request = k.registered(ctx, t)
	if _, err := k.dial(t, request).GetDevicePluginOptions(ctx, &v1beta1.Empty{}); err != nil {
		t.Errorf("after the second registration: %v", err)
	}
}

func TestPluginTakesThePlaceOfASocketThatACrashLeft(t *testing.T) {
	ctx := deadline(t)
	dir := socketDir(t)
	k := startKubelet(t, dir)
	o := options(newHost(t, "drover_sample0"), dir)
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.ownSocket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	start(ctx, t, o)

	if _, err := k.dial(t, k.registered(ctx, t)).GetDevicePluginOptions(ctx, &v1beta1.Empty{}); err != nil {
		t.Errorf("the plugin does not answer: %v", err)
	}
}

func TestRunRefusesOptionsThatCanNeverWork(t *testing.T) {
	good := Options{Resource: "drover.dev/sample", DeviceGlob: "/dev/x*", Permissions: "r", HostRoot: "/", SocketDir: "/run/x",
		Poll: time.Second}
	for given, spoil := range map[string]func(*Options){
		"resource without a domain":      func(o *Options) { o.Resource = "sample" },
		"resource with an empty domain":  func(o *Options) { o.Resource = "/sample" },
		"resource with two slashes":      func(o *Options) { o.Resource = "a/b/c" },
		"resource that CDI cannot name":  func(o *Options) { o.Resource = "a/0" },
		"pattern that cannot be parsed":  func(o *Options) { o.DeviceGlob = "/dev/[" },
		"permissions that no device has": func(o *Options) { o.Permissions = "x" },
		"no poll interval":               func(o *Options) { o.Poll = 0 },
		"relative socket folder":         func(o *Options) { o.SocketDir = "plugins" },
		"a CDI folder that is not there": func(o *Options) { o.CDIDir = filepath.Join(t.TempDir(), "cdi") },
	} {
		o := good
		spoil(&o)
		if err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: no error", given)
		}
	}
}

func TestDeviceID(t *testing.T) {
	for path, want := range map[string]string{
		"/dev/drover_sample0": "drover_sample0", "/dev/dri/card0": "dri-card0", "/dev/x@1:": "x-1",
	} {
		if got := deviceID(path); got != want {
			t.Errorf("deviceID(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestVariable(t *testing.T) {
	for _, tc := range []struct{ resource, id, want string }{
		{"example.com/ptemplate", "ptemplate-0", "ptemplate_0"},
		{"example.com/he-sample", "he_sample1", "he_sample_1"},
		{"drover.dev/sample", "drover_sample0", "sample_drover_sample0"},
		{"example.com/camera", "camera", "camera"},
	} {
		if got := variable(tc.resource, tc.id); got != tc.want {
			t.Errorf("variable(%q, %q) = %q, want %q", tc.resource, tc.id, got, tc.want)
		}
	}
}
