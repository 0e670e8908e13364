// SPDX-License-Identifier: Apache-2.0

package ocidir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// FuzzLayout gives an index, a manifest and a configuration of anything, each under its digest.
func FuzzLayout(f *testing.F) {
	image, err := random.Image(10, 1)
	if err != nil {
		f.Fatal(err)
	}
	for _, i := range []v1.Image{empty.Image, image} {
		manifest, err := i.RawManifest()
		config, configErr := i.RawConfigFile()
		if err := errors.Join(err, configErr); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(""), manifest, config)
	}
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:00"}]}`), []byte("{}"), []byte("{}"))
	f.Add([]byte(`{"manifests":[{}]}`), []byte(`{"manifests":[null]}`), []byte("null"))
	f.Add([]byte(``), []byte(`{"config":{"digest":"x:y","size":-1},"layers":[{"digest":"md5:0"}]}`), []byte(""))
	f.Fuzz(func(t *testing.T, index, manifest, config []byte) {
		dir := t.TempDir()
		blobs := filepath.Join(dir, "blobs", "sha256")
		if err := os.MkdirAll(blobs, 0o755); err != nil {
			t.Fatal(err)
		}
		if len(index) == 0 { // one that names the manifest
			index = fmt.Appendf(nil, `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":%d,"digest":"sha256:%x"}]}`,
				len(manifest), sha256.Sum256(manifest))
		}
		files := map[string][]byte{filepath.Join(dir, "index.json"): index}
		for _, blob := range [][]byte{manifest, config} {
			files[filepath.Join(blobs, fmt.Sprintf("%x", sha256.Sum256(blob)))] = blob
		}
		for name, content := range files {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := opened(t, dir).Top()
		if err != nil {
			return
		}
		raw, err := got.RawManifest()
		if err != nil || string(raw) != string(manifest) && string(raw) != string(config) {
			t.Errorf("the manifest is %q, %v", raw, err)
		}
		if image, ok := got.(v1.Image); ok {
			// What cannot be read is an error, and no panic.
			_, configErr := image.ConfigFile()
			if layers, err := image.Layers(); err == nil && configErr == nil {
				for _, l := range layers {
					_, _ = l.DiffID()
				}
			}
		}
	})
}
