// SPDX-License-Identifier: Apache-2.0

package ocidir

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func opened(t *testing.T, dir string) *Layout {
	t.Helper()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// top is the image or the index of a layout.
func top(t *testing.T, dir string) (image v1.Image, index v1.ImageIndex) {
	t.Helper()
	got, err := opened(t, dir).Top()
	if err != nil {
		t.Fatal(err)
	}
	if image, ok := got.(v1.Image); ok {
		return image, nil
	}
	index, ok := got.(v1.ImageIndex)
	if !ok {
		t.Fatalf("neither an image nor an index: %T", got)
	}
	return nil, index
}

func given(t *testing.T) (v1.Image, []v1.Layer) {
	t.Helper()
	image, err := random.Image(1000, 3)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	return image, layers
}

func digest(t *testing.T, one interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := one.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestWhatIsWrittenIsReadByUsAndByOthers(t *testing.T) {
	image, layers := given(t)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image})
	for name, given := range map[string]partial.Describable{"image": image, "index": index} {
		dir := t.TempDir()
		if err := Write(dir, given, layers); err != nil {
			t.Fatal(err)
		}
		gotImage, gotIndex := top(t, dir)
		theirs, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(theirs); err != nil && name == "index" {
			t.Error(err)
		}
		if name == "index" {
			if gotImage, err = gotIndex.Image(mustDigest(t, image)); err != nil {
				t.Fatal(err)
			}
		}
		if digest(t, gotImage) != digest(t, image) {
			t.Errorf("%s: another digest", name)
		}
		if err := validate.Image(gotImage); err != nil {
			t.Error(err)
		}
	}
}

func mustDigest(t *testing.T, image v1.Image) v1.Hash {
	t.Helper()
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAnImageTakesThePlaceOfAnother(t *testing.T) {
	dir := t.TempDir()
	image, layers := given(t)
	if err := Write(dir, image, layers); err != nil {
		t.Fatal(err)
	}
	more, err := random.Layer(100, "application/vnd.oci.image.layer.v1.tar+gzip")
	if err != nil {
		t.Fatal(err)
	}
	next, err := mutate.AppendLayers(image, more)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, next, []v1.Layer{more}); err != nil {
		t.Fatal(err)
	}
	got, _ := top(t, dir)
	if digest(t, got) != digest(t, next) {
		t.Error("the old image is still there")
	}
	if err := validate.Image(got); err != nil {
		t.Error(err)
	}
}

// read reads all of an image.
func read(manifest Manifest) error {
	image, ok := manifest.(v1.Image)
	if !ok {
		return errors.New("not an image")
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, one := range layers {
		content, err := one.Compressed()
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, content)
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return nil
}

func TestHostileLayouts(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	replace := func(t *testing.T, name string, with func(string) error) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(name), with(name)); err != nil {
			t.Fatal(err)
		}
	}
	linkTo := func(to string) func(string) error {
		return func(name string) error { return os.Symlink(to, name) }
	}
	content := func(raw string) func(string) error {
		return func(name string) error { return os.WriteFile(name, []byte(raw), 0o600) }
	}
	for name, spoil := range map[string]func(t *testing.T, dir, layer, manifest string){
		"a layer that is a link to a secret": func(t *testing.T, _, layer, _ string) { replace(t, layer, linkTo(secret)) },
		"a layer that is a link inside":      func(t *testing.T, dir, layer, _ string) { replace(t, layer, linkTo("../../index.json")) },
		"a layer that is another":            func(t *testing.T, _, layer, _ string) { replace(t, layer, content("another")) },
		"a layer that was changed": func(t *testing.T, _, layer, _ string) {
			raw, err := os.ReadFile(layer)
			if err != nil {
				t.Fatal(err)
			}
			raw[len(raw)-1]++
			replace(t, layer, content(string(raw)))
		},
		"a layer that is a folder": func(t *testing.T, _, layer, _ string) {
			replace(t, layer, func(n string) error { return os.Mkdir(n, 0o755) })
		},
		"a layer that is missing":  func(t *testing.T, _, layer, _ string) { replace(t, layer, func(string) error { return nil }) },
		"an index that is a link":  func(t *testing.T, dir, _, _ string) { replace(t, filepath.Join(dir, "index.json"), linkTo(secret)) },
		"an index that is no JSON": func(t *testing.T, dir, _, _ string) { replace(t, filepath.Join(dir, "index.json"), content("{")) },
		"an index of nothing":      func(t *testing.T, dir, _, _ string) { replace(t, filepath.Join(dir, "index.json"), content("{}")) },
		"an index that is missing": func(t *testing.T, dir, _, _ string) {
			replace(t, filepath.Join(dir, "index.json"), func(string) error { return nil })
		},
		"an index that is too large": func(t *testing.T, dir, _, _ string) {
			replace(t, filepath.Join(dir, "index.json"),
				func(n string) error { return errors.Join(os.WriteFile(n, nil, 0o600), os.Truncate(n, 1<<40)) })
		},
		"a manifest that was changed": func(t *testing.T, _, _, manifest string) { replace(t, manifest, content(`{"schemaVersion":2}`)) },
		"a folder of blobs that is a link away": func(t *testing.T, dir, _, _ string) {
			replace(t, filepath.Join(dir, "blobs"), linkTo(filepath.Dir(secret)))
		},
		"digests that are paths": func(t *testing.T, dir, _, manifest string) {
			raw, err := json.Marshal(map[string]any{"manifests": []any{map[string]any{
				"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 6, "digest": "sha256:../../../" + strings.Repeat("a", 55),
			}}})
			if err != nil {
				t.Fatal(err)
			}
			replace(t, filepath.Join(dir, "index.json"), content(string(raw)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			image, layers := given(t)
			if err := Write(dir, image, layers); err != nil {
				t.Fatal(err)
			}
			blob := func(d string) string { return filepath.Join(dir, "blobs", strings.Replace(d, ":", "/", 1)) }
			spoil(t, dir, blob(digest(t, layers[1])), blob(digest(t, image)))
			got, err := opened(t, dir).Top()
			if err == nil {
				err = read(got)
			}
			if err == nil || strings.Contains(err.Error(), "secret\n") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestNothingIsWrittenThroughLinks(t *testing.T) {
	image, layers := given(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	blobs := filepath.Join(dir, "blobs", "sha256")
	err := errors.Join(os.MkdirAll(blobs, 0o755), os.Symlink(outside, filepath.Join(dir, "index.json")),
		os.Symlink(outside, filepath.Join(blobs, strings.TrimPrefix(digest(t, layers[0]), "sha256:"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, image, layers); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(outside)
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != "as it was" {
		t.Errorf("a link was followed: %q", raw)
	}
	away := t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(away, "blobs")); err != nil {
		t.Fatal(err)
	}
	if err := Write(away, image, layers); !errors.Is(err, ErrLayout) {
		t.Errorf("blobs elsewhere: %v", err)
	}
}
