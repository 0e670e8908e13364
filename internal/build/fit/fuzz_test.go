// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// FuzzUnpack: whatever a layer holds, nothing is written or read outside of the folder.
func FuzzUnpack(f *testing.F) {
	f.Add(layer(f, tar.Header{Name: "lib/modules/6.1/a.ko", Typeflag: tar.TypeReg, Size: 1}))
	f.Add(layer(f, tar.Header{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "../outside"},
		tar.Header{Name: "lib/modules/a.ko", Typeflag: tar.TypeReg, Size: 1}))
	f.Add(layer(f, tar.Header{Name: "../outside/lib/modules/a.ko", Typeflag: tar.TypeReg, Size: 1},
		tar.Header{Name: "/", Typeflag: tar.TypeSymlink, Linkname: "/"}, tar.Header{Name: "a/lib/modules", Typeflag: tar.TypeReg, Size: 1}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		image, err := mutate.AppendLayers(empty.Image, static.NewLayer(raw, types.OCIUncompressedLayer))
		if err != nil {
			t.Skip(err)
		}
		dir := t.TempDir()
		for _, name := range []string{"inside", "outside"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(filepath.Join(dir, "inside"))
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(unpack(image, root, "/lib/firmware"), root.Close())
		for name, want := range map[string]int{".": 2, "outside": 0} {
			entries, listed := os.ReadDir(filepath.Join(dir, name))
			if listed != nil || len(entries) != want {
				t.Errorf("%s has %d entries, %v (unpacked: %v)", name, len(entries), listed, err)
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
