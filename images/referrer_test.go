// SPDX-License-Identifier: Apache-2.0

package images

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const noteType = "application/vnd.example.note+json"

// note is an artifact about an image, and the image.
func note(t *testing.T, text string) (v1.ImageIndex, v1.Image) {
	t.Helper()
	index := MultiArch(map[string]v1.Image{"amd64": kmodImage(t, kmodFiles(t, 0o644, time.Now()), "amd64")})
	made, err := Referrer(index, noteType, []byte(text), map[string]string{"example.com/why": "test"})
	if err != nil {
		t.Fatal(err)
	}
	return index, made
}

// TestAttachedIsAmongTheReferrers, whether the registry lists them or a tag has to; attached twice,
// it is there once.
func TestAttachedIsAmongTheReferrers(t *testing.T) {
	for given, lists := range map[string]bool{"a registry that lists referrers": true, "one that does not": false} {
		reference := startRegistry(t, registry.WithReferrersSupport(lists)) + "/drover/sample:1.0"
		index, made := note(t, `{"note":1}`)
		if err := Push(t.Context(), reference, index); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := Attach(t.Context(), reference, made); err != nil {
				t.Fatal(err)
			}
		}
		parsed, err := name.ParseReference(reference)
		if err != nil {
			t.Fatal(err)
		}
		found, err := remote.Referrers(parsed.Context().Digest(digest(t, index)))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := found.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest.String() != digest(t, made) {
			t.Errorf("%s: referrers %v, want %s", given, manifest.Manifests, digest(t, made))
		}
		pulled, err := remote.Image(parsed.Context().Digest(digest(t, made)))
		if err != nil {
			t.Fatal(err)
		}
		checkNote(t, given, index, pulled)
	}
}

func checkNote(t *testing.T, given string, index v1.ImageIndex, pulled v1.Image) {
	t.Helper()
	manifest, err := pulled.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Subject == nil || manifest.Subject.Digest.String() != digest(t, index) || manifest.ArtifactType != noteType ||
		manifest.Annotations["example.com/why"] != "test" {
		t.Errorf("%s: manifest %+v of an artifact about %s", given, manifest, digest(t, index))
	}
	layers, err := pulled.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%s: %d layers, %v", given, len(layers), err)
	}
	file, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if text, err := io.ReadAll(file); err != nil || string(text) != `{"note":1}` {
		t.Errorf("%s: content %s, %v", given, text, err)
	}
}

// TestReferrerDependsOnItsContent and on nothing else.
func TestReferrerDependsOnItsContent(t *testing.T) {
	_, first := note(t, "one")
	_, again := note(t, "one")
	_, other := note(t, "two")
	if digest(t, first) != digest(t, again) {
		t.Error("the same content has two digests")
	}
	if digest(t, first) == digest(t, other) {
		t.Error("two contents have one digest")
	}
}

func TestLayoutHoldsWhatRefersToTheImage(t *testing.T) {
	index, made := note(t, `{"note":1}`)
	folder := filepath.Join(t.TempDir(), "layout")
	if err := SaveAttested(folder, "1.0", index, []v1.Image{made}); err != nil {
		t.Fatal(err)
	}
	saved, held := savedIn(t, folder)
	if len(held) != 2 || held[0].Digest.String() != digest(t, index) ||
		held[0].Annotations[tagAnnotation] != "1.0" || held[1].ArtifactType != noteType {
		t.Errorf("layout holds %+v", held)
	}
	hash, err := made.Digest()
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := saved.Image(hash)
	if err != nil {
		t.Fatal(err)
	}
	checkNote(t, "a layout", index, pulled)
}
