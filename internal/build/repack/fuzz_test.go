// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-project/drover/internal/shared/imagefs"
)

// FuzzImage gives two layers of anything. Whatever they are, nothing but named files changes, and
// all of it below /opt.
func FuzzImage(f *testing.F) {
	f.Add(archive(f, []entry{regular("opt/a.ko", "a"), hard("opt/b.ko", "opt/a.ko")}),
		archive(f, []entry{regular("opt/.wh.a.ko", ""), regular("opt/c.ko", "c")}))
	f.Add(archive(f, []entry{dir("usr"), link("opt", "usr"), regular("usr/a.ko", "a")}), archive(f, []entry{regular("opt/../../x.ko", "")}))
	f.Add(zip(f, archive(f, []entry{regular("opt/.wh..wh..opq", ""), link("opt/l.ko", "/../../etc/shadow")})), []byte("\x28\xb5\x2f\xfd"))
	f.Fuzz(func(t *testing.T, low, high []byte) {
		image := empty.Image
		for _, raw := range [][]byte{low, high} {
			var err error
			if image, err = mutate.AppendLayers(image, static.NewLayer(raw, types.OCILayer)); err != nil {
				t.Skip(err)
			}
		}
		o := options(t, "/opt/*.ko", "/opt/*/*.ko")
		o.Limits = Limits{Entries: 1000, Names: 1 << 16, Unpacked: 1 << 20, File: 1 << 16, Files: 100, Changed: 1 << 18, Layers: 4}
		result, report, err := Image(t.Context(), image, o)
		if err != nil {
			return
		}
		if len(report.Changed) == 0 {
			return
		}
		known := map[string]bool{}
		for _, one := range report.Files {
			known[one] = true
		}
		for _, h := range top(t, result) {
			if strings.Contains(h.Name, "..") && strings.Contains("/"+h.Name+"/", "/../") || strings.HasPrefix(h.Name, "/") {
				t.Errorf("the entry %q leads out of the image", h.Name)
			}
			if h.Typeflag == tar.TypeReg && !known["/"+h.Name] {
				t.Errorf("%q was not asked for", h.Name)
			}
			if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
				t.Errorf("%q is of type %q", h.Name, h.Typeflag)
			}
		}
		again, second, err := Image(t.Context(), result, o)
		if err != nil || len(second.Changed) != 0 || digest(t, again) != digest(t, result) {
			t.Errorf("the second time: %v changed, %v", second.Changed, err)
		}
	})
}

// FuzzPatterns: a pattern never names what its own text cannot.
func FuzzPatterns(f *testing.F) {
	for _, one := range []string{"/opt/*.ko", "/o[!a]t/?.ko", "/opt/\\*.ko", "/opt/../opt/a.ko", "/[", "/*/*/*"} {
		f.Add(one)
	}
	view := newView()
	for _, e := range []entry{dir("opt"), regular("opt/a.ko", ""), regular("opt/.b.ko", ""), link("opt/loop", "loop"), link("up", ".."),
		regular("etc/x", "")} {
		if err := view.add(0, &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		patterns, err := parsePatterns([]string{text})
		if err != nil {
			if !errors.Is(err, ErrPattern) {
				t.Error(err)
			}
			return
		}
		found, unmatched, err := view.match(patterns, 10)
		var loop *imagefs.LinkError
		if errors.As(err, &loop) && loop.Path == "opt/loop" {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if (len(found) == 0) != (len(unmatched) == 1) {
			t.Errorf("%q: %v, unmatched %q", text, found, unmatched)
		}
	})
}

// FuzzEntryPath: names stay inside.
func FuzzEntryPath(f *testing.F) {
	for _, one := range []string{"a/b", "/a", "./a/", "../a", "a/../b", "a//b", "", "a/..", "..."} {
		f.Add(one)
	}
	f.Fuzz(func(t *testing.T, name string) {
		clean, err := entryPath(name)
		if err != nil {
			return
		}
		if strings.HasPrefix(clean, "/") || strings.Contains("/"+clean+"/", "/../") || bytes.ContainsRune([]byte(clean), 0) {
			t.Errorf("%q becomes %q", name, clean)
		}
	})
}
