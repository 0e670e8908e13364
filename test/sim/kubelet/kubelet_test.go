// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/test/sim/images"
)

// TestLetGo: those who are meant let go of the kernel module, and the others keep it.
func TestLetGo(t *testing.T) {
	plugin := host.User{Kind: host.UserProcess, Name: "plugin", Pod: "a/b"}
	for _, test := range []struct {
		name  string
		meant func(host.User) bool
		left  int
	}{
		{"a pod", func(u host.User) bool { return u.Pod == "a/b" }, 2},
		{"those whom no one sees", func(u host.User) bool { return u == host.User{} }, 1},
		{"all", func(host.User) bool { return true }, 0},
	} {
		kernel := fake.New(fake.Options{Release: images.Releases[0]})
		if err := kernel.Insmod(images.Content(images.Of("nic", 0), images.Releases[0])); err != nil {
			t.Fatal(err)
		}
		for _, u := range []host.User{{}, plugin, {}} {
			if err := kernel.HoldBy("nic", u); err != nil {
				t.Fatal(err)
			}
		}
		LetGo(kernel, "nic", test.meant)
		if m, _, err := kernel.Module("nic"); err != nil || m.RefCount != test.left {
			t.Errorf("%s: %d hold it, and %d should; %v", test.name, m.RefCount, test.left, err)
		}
		LetGo(kernel, "another", test.meant) // there is none
	}
}
