// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// host is a root with these device nodes, and what else is in /dev.
func host(t *testing.T, devices ...string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, device := range devices {
		// A real device node, without the right to make one.
		if err := os.Symlink("/dev/null", filepath.Join(root, "dev", device)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "dev", "drover_sample_log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func driverOn(t *testing.T, root string) *plugin {
	t.Helper()
	o := &Options{Driver: "sample.drover.dev", DeviceGlob: "/dev/drover_sample*", HostRoot: root, Node: "node-1", CDIDir: t.TempDir()}
	return &plugin{options: o, specs: specs{dir: o.CDIDir, driver: o.Driver}}
}

// claim is one that was given devices of a driver.
func claim(uid types.UID, driver string, devices ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, device := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Request: "one", Driver: driver, Pool: "node-1", Device: device,
		})
	}
	return c
}

func TestOnlyDeviceNodesArePublished(t *testing.T) {
	found, err := scan(host(t, "drover_sample1", "drover_sample0", "other"), "/dev/drover_sample*")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/dev/drover_sample0", "/dev/drover_sample1"}, found); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	pool := resources("node-1", found).Pools["node-1"]
	if d := pool.Slices[0].Devices[1]; d.Name != "drover-sample1" || *d.Attributes[pathAttribute].StringValue != found[1] {
		t.Errorf("published: %+v", d)
	}
}

func TestPreparedDeviceIsDescribed(t *testing.T) {
	p := driverOn(t, host(t, "drover_sample0"))
	devices, err := p.prepare(claim("uid-1", "sample.drover.dev", "drover-sample0"))
	if err != nil {
		t.Fatal(err)
	}
	want := []kubeletplugin.Device{{
		Requests: []string{"one"}, PoolName: "node-1", DeviceName: "drover-sample0",
		CDIDeviceIDs: []string{"sample.drover.dev/device=uid-1-drover-sample0"},
	}}
	if diff := cmp.Diff(want, devices); diff != "" {
		t.Errorf("prepared (-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(p.specs.file("uid-1"))
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	node := map[string]any{"path": "/dev/drover_sample0", "permissions": "r"}
	edits := map[string]any{"env": []any{"DEVICE_DROVER_SAMPLE0=/dev/drover_sample0"}, "deviceNodes": []any{node}}
	spec := map[string]any{
		"cdiVersion": "0.5.0", "kind": "sample.drover.dev/device", "containerEdits": map[string]any{},
		"devices": []any{map[string]any{"name": "uid-1-drover-sample0", "containerEdits": edits}},
	}
	if diff := cmp.Diff(any(spec), got); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
}

func TestPrepare(t *testing.T) {
	const name = "sample.drover.dev"
	cases := map[string]struct {
		before *resourcev1.ResourceClaim
		given  *resourcev1.ResourceClaim
		fails  string
	}{
		"again":                {before: claim("a", name, "drover-sample0"), given: claim("a", name, "drover-sample0")},
		"beside another":       {before: claim("a", name, "drover-sample0"), given: claim("b", name, "drover-sample1")},
		"held by another":      {before: claim("a", name, "drover-sample0"), given: claim("b", name, "drover-sample0"), fails: "held by"},
		"a device that left":   {given: claim("a", name, "drover-sample7"), fails: "not there"},
		"of another driver":    {given: claim("a", "gpu.example.com", "drover-sample7")},
		"after an unprepared":  {before: claim("gone", name, "drover-sample0"), given: claim("b", name, "drover-sample0")},
		"never prepared, gone": {given: claim("gone", name, "drover-sample0")},
	}
	for label, tc := range cases {
		t.Run(label, func(t *testing.T) {
			p := driverOn(t, host(t, "drover_sample0", "drover_sample1"))
			if tc.before != nil {
				if _, err := p.prepare(tc.before); err != nil {
					t.Fatal(err)
				}
			}
			results, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: "gone"}})
			if err != nil || results["gone"] != nil {
				t.Fatal(err, results)
			}
			_, err = p.prepare(tc.given)
			if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("error %v, want %q", err, tc.fails)
			}
		})
	}
}
