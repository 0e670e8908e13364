// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/cli/lint"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/internal/testkit/clitest"
)

// TestSources: OCI layouts and archives as tools write them, and as nobody should.
func TestSources(t *testing.T) {
	nic := func(t *testing.T, arch string, machine uint16) v1.Image {
		return image(t, arch, synth.Module{Name: "nic", Machine: machine})
	}
	saved := func(t *testing.T, index v1.ImageIndex) string {
		folder := t.TempDir()
		if err := images.SaveLayout(folder, index); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	add := func(index v1.ImageIndex, what mutate.Appendable, platform *v1.Platform) v1.ImageIndex {
		return mutate.AppendManifests(index, mutate.IndexAddendum{Add: what, Descriptor: v1.Descriptor{Platform: platform}})
	}
	cases := map[string]struct {
		given func(t *testing.T) string
		then  int
		says  []string
		not   string
	}{
		"a layout with an index in its index": {
			given: func(t *testing.T) string {
				inner := images.MultiArch(map[string]v1.Image{"amd64": nic(t, "amd64", synth.MachineX86_64),
					"arm64": nic(t, "arm64", synth.MachineAArch64)})
				return saved(t, add(empty.Index, inner, nil))
			},
			says: []string{"linux/amd64", "linux/arm64", "No check failed for kernel"},
		},
		"a layout with an attestation beside the image": {
			given: func(t *testing.T) string {
				index := add(empty.Index, nic(t, "amd64", synth.MachineX86_64), &v1.Platform{OS: "linux", Architecture: "amd64"})
				return saved(t, add(index, empty.Image, &v1.Platform{OS: "unknown", Architecture: "unknown"}))
			},
			says: []string{"linux/amd64", "No check failed for kernel"}, not: "unknown/unknown",
		},
		"a layout without an image for Linux": {
			given: func(t *testing.T) string {
				return saved(t, add(empty.Index, empty.Image, &v1.Platform{OS: "windows", Architecture: "amd64"}))
			},
			then: 2, says: []string{"names no image for Linux"},
		},
		"a layout whose blobs are missing": {
			given: func(t *testing.T) string {
				folder := saved(t, images.MultiArch(map[string]v1.Image{"amd64": nic(t, "amd64", synth.MachineX86_64)}))
				if err := os.RemoveAll(filepath.Join(folder, "blobs")); err != nil {
					t.Fatal(err)
				}
				return folder
			},
			then: 2, says: []string{"no such file"},
		},
		"an archive of an image for another machine": {
			given: func(t *testing.T) string {
				file := filepath.Join(t.TempDir(), "image.tar")
				if err := images.SaveTarball(file, "example.com/nic:1", nic(t, "amd64", synth.MachineAArch64)); err != nil {
					t.Fatal(err)
				}
				return file
			},
			then: 1, says: []string{"linux/amd64", "VermagicMismatch"},
		},
		"an archive of two images": {
			given: func(t *testing.T) string {
				file, both := filepath.Join(t.TempDir(), "image.tar"), map[name.Reference]v1.Image{}
				for _, tag := range []string{"example.com/nic:1", "example.com/nic:2"} {
					reference, err := name.ParseReference(tag)
					if err != nil {
						t.Fatal(err)
					}
					both[reference] = image(t, "amd64", synth.Module{Name: "nic", Version: tag})
				}
				if err := tarball.MultiRefWriteToFile(file, both); err != nil {
					t.Fatal(err)
				}
				return file
			},
			then: 2, says: []string{"read the archive", "single image"},
		},
		"a file that is no archive": {
			given: func(t *testing.T) string {
				file := filepath.Join(t.TempDir(), "image.tar")
				if err := os.WriteFile(file, []byte("no archive"), 0o600); err != nil {
					t.Fatal(err)
				}
				return file
			},
			then: 2, says: []string{"read the archive"},
		},
		"a folder with the image's content": {
			given: func(t *testing.T) string {
				folder := t.TempDir()
				for target, local := range files(t, synth.Module{Name: "nic"}) {
					if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, target)), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.Rename(local, filepath.Join(folder, target)); err != nil {
						t.Fatal(err)
					}
				}
				return folder
			},
			says: []string{"No check failed for kernel", "folder "},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out, code := clitest.Run(t, &rest.Config{}, "default", lint.NewCommand, tc.given(t), "--kernel", kernel)
			if code != tc.then {
				t.Errorf("it ends with %d, want %d", code, tc.then)
			}
			for _, words := range tc.says {
				if !strings.Contains(out, words) {
					t.Errorf("it does not say %q:\n%s", words, out)
				}
			}
			if tc.not != "" && strings.Contains(out, tc.not) {
				t.Errorf("it says %q:\n%s", tc.not, out)
			}
		})
	}
}
