// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

const pod = types.UID("0f4e31c2-8f3c-4b7e-9a55-6f1f0c3d2b1a")

// TestLook: given directories and mounts, each finding says what is wrong and what to do, or
// nothing.
func TestLook(t *testing.T) {
	type dirs struct{ state, pods string }
	mkdir := func(t *testing.T, elem ...string) string {
		t.Helper()
		dir := filepath.Join(elem...)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cases := map[string]struct {
		given                  func(t *testing.T, d *dirs, o *Options)
		mounts                 string
		idle, delivery, forget string
	}{
		"all is well":  {},
		"not in a pod": {given: func(_ *testing.T, _ *dirs, o *Options) { o.PodUID = "" }},
		"another kubelet's directory": {given: func(_ *testing.T, _ *dirs, o *Options) { o.PodUID = "another" },
			delivery: "lacks the agent's own pod another. Set --kubelet-pods"},
		"no kubelet's directory at all": {given: func(_ *testing.T, _ *dirs, o *Options) { o.PodsDir += "/none" }, delivery: "cannot be read"},
		"the state is a file": {given: func(t *testing.T, d *dirs, o *Options) {
			o.StateDir = filepath.Join(d.state, "file")
			if err := os.WriteFile(o.StateDir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, idle: "Set --state-dir"},
		"the state is below a file": {given: func(_ *testing.T, d *dirs, o *Options) { o.StateDir = "/proc/version/state" },
			idle: "cannot be written"},
		"no place for the state": {given: func(_ *testing.T, _ *dirs, o *Options) { o.StateDir = "/proc/drover" }, idle: "cannot be written"},
		"the state is in memory": {mounts: "30 1 0:26 / %s rw - tmpfs tmpfs rw\n", forget: "in memory (tmpfs)"},
		"the state is an emptyDir": {mounts: "30 1 8:1 /k/pods/0f4e/volumes/kubernetes.io~empty-dir/state %s rw shared:1 master:2 - ext4 " +
			"/dev/sda1 rw\n", forget: "in an emptyDir"},
		"a disk over memory":  {mounts: "30 1 0:26 / %[1]s rw - tmpfs tmpfs rw\n31 30 8:1 /lib/drover %[1]s rw - ext4 /dev/sda1 rw\n"},
		"memory beside it":    {mounts: "30 1 0:26 / %sx rw - tmpfs tmpfs rw\n"},
		"the container's own": {mounts: "29 1 0:25 / / rw - overlay overlay rw\n", forget: "in the agent's container"},
		"nonsense":            {mounts: "what\n\n - \n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			d := &dirs{state: mkdir(t, base, "a state"), pods: mkdir(t, base, "pods")}
			mkdir(t, d.pods, string(pod))
			mounts := "28 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
			if strings.Contains(c.mounts, "%") {
				mounts += fmt.Sprintf(c.mounts, strings.ReplaceAll(d.state, " ", `\040`))
			} else {
				mounts += c.mounts
			}
			o := Options{StateDir: d.state, PodsDir: d.pods, PodUID: pod, MountInfo: filepath.Join(base, "mountinfo")}
			if err := os.WriteFile(o.MountInfo, []byte(mounts), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.given != nil {
				c.given(t, d, &o)
			}
			got := Look(o)
			for _, f := range []struct{ what, got, want string }{{"idle", got.Idle, c.idle}, {"delivery", got.NoDelivery, c.delivery},
				{"forgets", got.Forgets, c.forget}} {
				if (f.got == "") != (f.want == "") || !strings.Contains(f.got, f.want) {
					t.Errorf("%s: %q, want %q", f.what, f.got, f.want)
				}
			}
			left, err := os.ReadDir(d.state)
			if err != nil || len(left) > 0 && name != "the state is a file" {
				t.Errorf("left in the state directory: %v, %v", left, err)
			}
		})
	}
}

// TestThisMachine: the real mounts can be read. In a chroot, not every path is on one of them.
func TestThisMachine(t *testing.T) {
	m, err := mountOf("/proc/self", "/proc/self/mountinfo")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no /proc here")
	}
	if err != nil || m.Point != "/proc" || m.Kind != "proc" {
		t.Errorf("%+v, %v", m, err)
	}
}
