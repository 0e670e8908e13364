// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

func describing(h host, dir, cdiDir string) Options {
	o := options(h, dir)
	o.Resource, o.DeviceGlob, o.CDIDir = "example.com/ptemplate", "/dev/ptemplate-*", cdiDir
	return o
}

// described reads a folder as a container runtime does: device nodes by the
// devices' full names. Without a file it is nil.
func described(t *testing.T, dir string) map[string]cdi.ContainerEdits {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "example.com-ptemplate.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var spec cdi.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatalf("a runtime would see %q: %v", text, err)
	}
	if err := cdi.ValidateVersion(&spec); err != nil {
		t.Error(err)
	}
	edits := map[string]cdi.ContainerEdits{}
	for _, d := range spec.Devices {
		edits[spec.Kind+"="+d.Name] = d.ContainerEdits
	}
	return edits
}

func edits(variable, path string) cdi.ContainerEdits {
	return cdi.ContainerEdits{Env: []string{variable + "=" + path}, DeviceNodes: []*cdi.DeviceNode{{Path: path, Permissions: "rw"}}}
}

// becomes waits until a folder describes exactly these devices.
func becomes(ctx context.Context, t *testing.T, given, dir string, want map[string]cdi.ContainerEdits) {
	t.Helper()
	diff := ""
	err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		diff = cmp.Diff(want, described(t, dir))
		return diff == "", nil
	})
	if err != nil {
		t.Errorf("%s: %v (-want +got):\n%s", given, err, diff)
	}
}

func TestPluginAnswersWithCDIDevicesThatAreDescribed(t *testing.T) {
	ctx := deadline(t)
	h, dir, cdiDir := newHost(t, "ptemplate-0"), socketDir(t), t.TempDir()
	k := startKubelet(t, dir)
	stop := start(ctx, t, describing(h, dir, cdiDir))
	client := k.dial(t, k.registered(ctx, t))

	zero := map[string]cdi.ContainerEdits{"example.com/ptemplate=ptemplate-0": edits("ptemplate_0", "/dev/ptemplate-0")}
	both := map[string]cdi.ContainerEdits{
		"example.com/ptemplate=ptemplate-0": edits("ptemplate_0", "/dev/ptemplate-0"),
		"example.com/ptemplate=ptemplate-1": edits("ptemplate_1", "/dev/ptemplate-1"),
	}
	becomes(ctx, t, "at the start", cdiDir, zero)
	h.add(t, "ptemplate-1")
	becomes(ctx, t, "a device appears", cdiDir, both)
	empty(t, cdiDir)
	becomes(ctx, t, "somebody empties the folder", cdiDir, both)
	h.remove(t, "ptemplate-1")
	becomes(ctx, t, "a device vanishes", cdiDir, zero)
	h.remove(t, "ptemplate-0")
	becomes(ctx, t, "none is left", cdiDir, nil)
	h.add(t, "ptemplate-0")
	becomes(ctx, t, "it comes back", cdiDir, zero)

	got, err := client.Allocate(ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"ptemplate-0"}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{
		{CdiDevices: []*v1beta1.CDIDevice{{Name: "example.com/ptemplate=ptemplate-0"}}},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("allocation (-want +got):\n%s", diff)
	}
	stop()
	if left, err := os.ReadDir(cdiDir); err != nil || len(left) > 0 {
		t.Errorf("after the plugin's end its folder holds %v, %v", left, err)
	}
}

func TestDescriptionIsThereBeforeItIsAllocated(t *testing.T) {
	o := describing(newHost(t, "ptemplate-0"), "/unused", t.TempDir())
	devices := newInventory()
	devices.update([]string{"/dev/ptemplate-0"})
	s := &service{options: o, devices: devices, described: &description{options: o}}
	request := &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"ptemplate-0"}}}}
	for _, given := range []string{"at first", "after somebody emptied the folder"} {
		if _, err := s.Allocate(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if len(described(t, o.CDIDir)) != 1 {
			t.Errorf("%s: no device is described", given)
		}
		empty(t, o.CDIDir)
	}
	if err := os.Remove(o.CDIDir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Allocate(t.Context(), request); err == nil {
		t.Error("a device that no runtime can find is allocated")
	}
}

// empty removes all files of a folder.
func empty(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Remove(filepath.Join(dir, file.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// The next plugin of a node may start before the last one has ended.
func TestDescriptionOfTheNextPluginStays(t *testing.T) {
	o := describing(newHost(t), "/unused", t.TempDir())
	last, next := &description{options: o}, &description{options: o}
	devices := map[string]string{"ptemplate-0": "/dev/ptemplate-0"}
	for _, d := range []*description{last, next} {
		if err := d.keep(devices); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(last.keep(devices), last.remove()); err != nil {
		t.Fatal(err)
	}
	if len(described(t, o.CDIDir)) != 1 {
		t.Error("the last plugin took the description of the next")
	}
	if err := next.remove(); err != nil {
		t.Fatal(err)
	}
	if described(t, o.CDIDir) != nil {
		t.Error("the description outlived its plugin")
	}
}
