// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// FuzzSymbols: a symbol is one that the file names.
func FuzzSymbols(f *testing.F) {
	f.Add("0x12345678\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n0x00000000\tx\tvmlinux\tEXPORT_SYMBOL_GPL\n")
	f.Add("ffffffff81000000 r __ksymtab_printk\nffffffff81000000 T _text\n")
	f.Add("0xzz a b c\n")
	f.Fuzz(func(t *testing.T, text string) {
		found, err := parseSymbols(strings.NewReader(text))
		if (len(found) == 0) == (err == nil) {
			t.Errorf("%d symbols, %v", len(found), err)
		}
		for name, s := range found {
			if s.Name != name || !strings.Contains(text, name) || s.HasCRC != (s.CRC != 0) {
				t.Errorf("%q: %+v", name, s)
			}
		}
	})
}

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
