// SPDX-License-Identifier: Apache-2.0

package images

import (
	"testing"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// TestBuildsDiffer: each image has a build of its own for each kernel.
func TestBuildsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, module := range Names {
		for a := range uint8(Each) {
			for _, release := range Releases {
				image := Of(module, a)
				info, err := kmod.Read(Content(image, release))
				if err != nil {
					t.Fatal(err)
				}
				if seen[info.BuildID] || info.Name != module || Module(image) != module ||
					OfBuild(info.BuildID) != image || ReleaseOf(info.BuildID) != release {
					t.Errorf("%s for %s: module %s, build %s of %s", image, release, info.Name, info.BuildID, OfBuild(info.BuildID))
				}
				seen[info.BuildID] = true
			}
		}
	}
	if Content("registry.example/none:1", Releases[0]) != nil || OfBuild("x") != "" {
		t.Error("an image that is none has content")
	}
	if got := Short(Of("nic", 7)); got != "3" {
		t.Errorf("the seventh image is number %s", got)
	}
}
