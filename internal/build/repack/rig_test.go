// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entry is one entry of a layer that a test gives.
type entry struct {
	name    string
	kind    byte
	content string
	link    string
	mode    int64
	uid     int
	xattrs  map[string]string
}

func regular(name, content string) entry {
	return entry{name: name, kind: tar.TypeReg, content: content}
}
func dir(name string) entry      { return entry{name: name, kind: tar.TypeDir, mode: 0o755} }
func link(name, to string) entry { return entry{name: name, kind: tar.TypeSymlink, link: to} }
func hard(name, to string) entry { return entry{name: name, kind: tar.TypeLink, link: to} }

func archive(t testing.TB, entries []entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{
			Name: e.name, Typeflag: e.kind, Linkname: e.link, Size: int64(len(e.content)), Mode: e.mode, Uid: e.uid,
			ModTime: time.Unix(1_700_000_000, 0), PAXRecords: e.xattrs,
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zip(t testing.TB, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(raw)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// packed is a layer of these bytes.
func packed(t testing.TB, raw []byte) v1.Layer {
	t.Helper()
	content := zip(t, raw)
	file := filepath.Join(t.TempDir(), "layer")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	hash := func(of []byte) v1.Hash {
		d, _, err := v1.SHA256(bytes.NewReader(of))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	one, err := partial.CompressedToLayer(&layer{file: file, kind: types.OCILayer, digest: hash(content), diffID: hash(raw),
		size: int64(len(content))})
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func imageOf(t testing.TB, layers ...[]entry) v1.Image {
	t.Helper()
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, one := range layers {
		var err error
		if image, err = mutate.AppendLayers(image, packed(t, archive(t, one))); err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// shout is a change that tests can see, and that changes nothing the second time.
func shout(_ string, from *os.File, to io.Writer) (bool, error) {
	content, err := io.ReadAll(from)
	if err != nil {
		return false, err
	}
	_, err = to.Write(bytes.ToUpper(content))
	return !bytes.Equal(content, bytes.ToUpper(content)), err
}

func options(t testing.TB, patterns ...string) Options {
	t.Helper()
	return Options{Patterns: patterns, Change: shout, Dir: t.TempDir(), Comment: "test", Limits: DefaultLimits()}
}

// top are the entries of the highest layer, "name" with content.
func top(t testing.TB, image v1.Image) []*tar.Header {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[len(layers)-1].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	var all []*tar.Header
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
}

// files of an image as a container sees them, by path.
func files(t testing.TB, image v1.Image) map[string]string {
	t.Helper()
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	found := map[string]string{}
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			found["/"+h.Name] = string(content)
		}
	}
}

func digest(t testing.TB, one interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := one.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func equal(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
