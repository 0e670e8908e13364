// SPDX-License-Identifier: Apache-2.0

package variants

import (
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type anyIndex v1.ImageIndex

// nested names the same index, or the same image, many times.
type nested struct {
	anyIndex
	times int
	inner v1.ImageIndex
}

func (n nested) IndexManifest() (*v1.IndexManifest, error) {
	d := v1.Descriptor{MediaType: types.OCIManifestSchema1}
	if n.inner != nil {
		d.MediaType = types.OCIImageIndex
	}
	return &v1.IndexManifest{Manifests: slices.Repeat([]v1.Descriptor{d}, n.times)}, nil
}

func (n nested) ImageIndex(v1.Hash) (v1.ImageIndex, error) { return n.inner, nil }

func (n nested) Image(v1.Hash) (v1.Image, error) { return empty.Image, nil }

// FuzzNestedIndexes: however indexes nest, few images are looked at.
func FuzzNestedIndexes(f *testing.F) {
	f.Add(byte(1), byte(1), byte(1))
	f.Add(byte(100), byte(100), byte(100))
	f.Fuzz(func(t *testing.T, a, b, c byte) {
		var index v1.ImageIndex
		all := 1
		for _, times := range []byte{c, b, a} {
			index, all = nested{anyIndex: empty.Index, times: int(times), inner: index}, all*int(times)
		}
		found, err := fromIndex(index, "")
		if len(found) > mostImages || err == nil && len(found) != all {
			t.Errorf("%d of %d images, %v", len(found), all, err)
		}
	})
}
