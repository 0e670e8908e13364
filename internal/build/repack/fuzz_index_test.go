// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"errors"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type anyIndex v1.ImageIndex

// wide is an index that names the same index, or the same image without one, many times.
type wide struct {
	anyIndex
	times  int
	inner  v1.ImageIndex
	opened *int
}

func (w wide) IndexManifest() (*v1.IndexManifest, error) {
	d := v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}
	if w.inner != nil {
		d.MediaType = types.OCIImageIndex
	}
	return &v1.IndexManifest{SchemaVersion: 2, Manifests: slices.Repeat([]v1.Descriptor{d}, w.times)}, nil
}

func (w wide) ImageIndex(v1.Hash) (v1.ImageIndex, error) { return w.inner, nil }

func (w wide) Image(v1.Hash) (v1.Image, error) {
	*w.opened++
	return empty.Image, nil
}

// FuzzNestedIndexes: however indexes nest, few images are opened.
func FuzzNestedIndexes(f *testing.F) {
	f.Add(byte(1), byte(1), byte(1), byte(1), byte(1))
	f.Add(byte(100), byte(100), byte(100), byte(0), byte(0))
	f.Add(byte(7), byte(0), byte(9), byte(3), byte(255))
	f.Fuzz(func(t *testing.T, a, b, c, d, e byte) {
		opened, all := 0, 1
		var index v1.ImageIndex
		for _, times := range []byte{e, d, c, b, a} {
			if times == 0 {
				continue // one level less
			}
			index, all = wide{anyIndex: empty.Index, times: int(times), inner: index, opened: &opened}, all*int(times)
		}
		if index == nil {
			t.Skip("no index")
		}
		_, _, err := Index(t.Context(), index, nil, options(t, "/opt/*.ko"))
		if err != nil && !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		if opened > mostKids || err == nil && opened != all {
			t.Errorf("%d of %d images were opened: %v", opened, all, err)
		}
	})
}
