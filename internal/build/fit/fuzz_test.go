// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// FuzzLook: whatever a layer holds, an answer comes, nothing is written outside of the folder for
// temporary files, and nothing stays there.
func FuzzLook(f *testing.F) {
	f.Add(layer(f, tar.Header{Name: "lib/modules/6.1/a.ko", Typeflag: tar.TypeReg, Size: 1}))
	f.Add(layer(f, tar.Header{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "../outside"},
		tar.Header{Name: "lib/modules/a.ko", Typeflag: tar.TypeReg, Size: 1}))
	f.Add(layer(f, tar.Header{Name: "data/a.ko", Typeflag: tar.TypeReg, Size: 1},
		tar.Header{Name: "data/b.ko", Typeflag: tar.TypeLink, Linkname: "data/a.ko"},
		tar.Header{Name: "lib/modules/6.1/updates", Typeflag: tar.TypeSymlink, Linkname: "/data"}))
	f.Add(layer(f, tar.Header{Name: "lib/modules/6.1/a.ko", Typeflag: tar.TypeLink, Linkname: "../../outside"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		image, err := mutate.AppendLayers(empty.Image, static.NewLayer(raw, types.OCIUncompressedLayer))
		if err != nil {
			t.Skip(err)
		}
		dir := t.TempDir()
		inside := filepath.Join(dir, "inside")
		if err := os.Mkdir(inside, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", inside)
		findings, err := Look(t.Context(), image, Wish{Kernel: "6.1", Dir: "/", Firmware: "/lib/firmware"})
		if err == nil && len(findings) == 0 {
			t.Error("no findings and no error")
		}
		for name, want := range map[string]int{dir: 1, inside: 0} {
			entries, err := os.ReadDir(name)
			if err != nil || len(entries) != want {
				t.Errorf("%s has %d entries, %v", name, len(entries), err)
			}
		}
	})
}

func layer(f *testing.F, headers ...tar.Header) []byte {
	f.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, h := range headers {
		h.Mode = 0o644
		err := archive.WriteHeader(&h)
		if err == nil && h.Size > 0 {
			_, err = archive.Write(make([]byte, h.Size))
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}
