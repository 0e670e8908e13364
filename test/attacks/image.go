// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/step"
)

// secret is in files that are none of an image's business.
const secret = "root:$6$hash"

// imageAttacks are those of what an image, or the registry that it comes from, says.
func imageAttacks() []Attack {
	return []Attack{
		{Who: Image, What: "have a file of the node delivered by a link among its firmware", Why: "it is not the image's",
			Answer: Check("image-links"), Says: "nothing of the node", Try: exportsLink},
		{Who: Image, What: "put a link to a file of the node into a carrier's output", Why: "the agent is root, and would follow it",
			Answer: Check("delivered-links"), Says: "is a symbolic link", Try: imports(func(s *Scene, out string) {
				target := s.file("shadow", secret)
				s.delivers(out, "lib/modules/6/nic.ko", secret)
				s.must(errors.Join(os.Remove(filepath.Join(out, "tree/lib/modules/6/nic.ko")),
					os.Symlink(target, filepath.Join(out, "tree/lib/modules/6/nic.ko"))))
			})},
		{Who: Image, What: "deliver other bytes than its manifest lists", Why: "what was compared would not be what is loaded",
			Answer: Check("delivered-content"), Says: "does not have the sha256", Try: imports(func(s *Scene, out string) {
				s.delivers(out, "lib/modules/6/nic.ko", "good")
				s.must(os.WriteFile(filepath.Join(out, "tree/lib/modules/6/nic.ko"), []byte("evil"), 0o600))
			})},
		{Who: Image, What: "name a file of its delivery so that it lies outside of the store", Why: "the agent is root, and would write it",
			Answer: Check("delivered-names"), Says: "not a clean relative path", Try: parses("../../etc/cron.d/evil")},
		{Who: Image, What: "write outside of the folder into which a build unpacks it", Why: "a build would overwrite its own tools",
			Answer: Check("layer-names"), Says: "leads upwards", Try: func(s *Scene) error { return s.unpacks("../escaped") }},
	}
}

func (s *Scene) file(name, content string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), name)
	s.must(os.WriteFile(path, []byte(content), 0o600))
	return path
}

// exportsLink runs a carrier's program on an image.
func exportsLink(s *Scene) error {
	image, out := s.TempDir(), s.TempDir()
	firmware, modules := filepath.Join(image, "firmware"), filepath.Join(image, "opt/lib/modules", kernelVersion)
	s.must(errors.Join(os.MkdirAll(firmware, 0o755), os.MkdirAll(modules, 0o755),
		os.Symlink(s.file("shadow", secret), filepath.Join(firmware, "a.bin"))))
	err := export.Run(s.Context(), export.Options{From: image, To: out, Kernel: kernelVersion, FirmwarePath: "/firmware", WholeTree: true})
	s.must(err)
	said := "nothing of the node is delivered"
	err = filepath.WalkDir(out, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(secret)) {
			said = ""
		}
		return err
	})
	s.must(err)
	if said == "" {
		return nil
	}
	return stopped("%s", said)
}

// delivers writes a carrier's output with one file, as the carrier's program does.
func (s *Scene) delivers(out, name, content string) {
	s.Helper()
	sum, size, err := manifest.Sum(strings.NewReader(content))
	s.must(err)
	text, err := json.Marshal(manifest.Manifest{Schema: manifest.Schema, Kernel: kernelVersion,
		Files: []manifest.Entry{{Path: name, Size: size, SHA256: sum}}})
	s.must(err)
	path := filepath.Join(out, manifest.TreeDir, filepath.FromSlash(name))
	s.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600),
		os.WriteFile(filepath.Join(out, manifest.File), text, 0o600)))
}

// imports has the agent's store take over a carrier's output.
func imports(forge func(s *Scene, out string)) func(*Scene) error {
	return func(s *Scene) error {
		const uid = "11111111-1111-4111-8111-111111111111"
		pods := s.TempDir()
		rel, err := store.OutputDir(uid)
		s.must(err)
		out := filepath.Join(pods, rel)
		s.must(os.MkdirAll(out, 0o755))
		forge(s, out)
		taken, err := store.New(s.Context(), s.TempDir(), store.Options{PodsDir: pods, Sync: statefile.NoSync})
		s.must(err)
		_, err = taken.Import(s.Context(), "id", uid)
		return err
	}
}

// parses reads a manifest that lists a file.
func parses(name string) func(*Scene) error {
	return func(s *Scene) error {
		sum, _, err := manifest.Sum(strings.NewReader(""))
		s.must(err)
		text, err := json.Marshal(manifest.Manifest{Schema: manifest.Schema, Kernel: kernelVersion,
			Files: []manifest.Entry{{Path: name, SHA256: sum}}})
		s.must(err)
		_, err = manifest.Parse(text)
		return err
	}
}

// layer is one with a file, or with a link.
func (s *Scene) layer(name, link string) []byte {
	s.Helper()
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	header, content := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, secret
	if link != "" {
		header.Typeflag, header.Linkname, content = tar.TypeSymlink, link, ""
	}
	header.Size = int64(len(content))
	s.must(archive.WriteHeader(header))
	_, err := archive.Write([]byte(content))
	s.must(errors.Join(err, archive.Close()))
	return layer.Bytes()
}

// unpacks lays out an image with one file as a build does.
func (s *Scene) unpacks(name string) error {
	s.Helper()
	image, err := imageOf(s.layer(name, ""))
	s.must(err)
	dir := filepath.Join(s.TempDir(), "in", "here")
	s.must(os.MkdirAll(dir, 0o755))
	return repack.Unpack(s.Context(), image, dir, repack.DefaultLimits())
}

func imageOf(layer []byte) (v1.Image, error) {
	one, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, one)
}

// registryAttacks are answers of a registry to a step of a build.
func registryAttacks() []Attack {
	asked := "builds name their images by digest, so that a registry cannot choose"
	return []Attack{
		{Who: Registry, What: "answer with another manifest than the digest that was asked for", Why: asked,
			Answer: Library, Says: "digest",
			Try: func(s *Scene) error {
				return s.fetches("@sha256:"+strings.Repeat("a", 64), func(image v1.Image) answers { return honest(s, image) })
			}},
		{Who: Registry, What: "answer with another layer than the manifest names", Why: asked, Answer: Library, Says: "sha256",
			Try: func(s *Scene) error {
				return s.fetches(":1", func(image v1.Image) answers {
					a := honest(s, image)
					a.layer[4] ^= 1 // the time in gzip's header: the content stays readable
					return a
				})
			}},
		{Who: Registry, What: "answer with a manifest that does not end", Why: "a step would take all of the node's memory",
			Answer: Library,
			Says:   "limit", Try: func(s *Scene) error {
				return s.fetches(":1", func(image v1.Image) answers {
					a := honest(s, image)
					a.endless = true
					return a
				})
			}},
	}
}

// answers are what a registry says of its only image.
type answers struct {
	manifest, config, layer []byte
	endless                 bool
}

func honest(s *Scene, image v1.Image) answers {
	s.Helper()
	var a answers
	var err error
	a.manifest, err = image.RawManifest()
	s.must(err)
	a.config, err = image.RawConfigFile()
	s.must(err)
	layers, err := image.Layers()
	s.must(err)
	packed, err := layers[0].Compressed()
	s.must(err)
	a.layer, err = io.ReadAll(packed)
	s.must(errors.Join(err, packed.Close()))
	return a
}

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.Contains(r.URL.Path, "/manifests/"):
		w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
		for _, _ = w.Write(a.manifest); a.endless && r.Context().Err() == nil; {
			if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
				return
			}
		}
	case strings.Contains(r.URL.Path, "/blobs/"):
		blob := a.layer
		if isConfig(r.URL.Path, a.config) {
			blob = a.config
		}
		_, _ = w.Write(blob)
	}
}

func isConfig(path string, config []byte) bool {
	digest, _, err := v1.SHA256(bytes.NewReader(config))
	return err == nil && strings.HasSuffix(path, digest.String())
}

// fetches has a build's step bring an image from a registry that says what it likes.
func (s *Scene) fetches(reference string, forge func(v1.Image) answers) error {
	s.Helper()
	image, err := imageOf(s.layer("firmware.bin", ""))
	s.must(err)
	server := httptest.NewServer(forge(image))
	defer server.Close()
	registry := step.Registry{Image: strings.TrimPrefix(server.URL, "http://") + "/nic" + reference, Insecure: true, Backoff: time.Millisecond}
	top, err := registry.Fetch(s.Context())
	if err != nil {
		return err
	}
	fetched, err := step.ForPlatform(top, "amd64")
	if err != nil {
		return err
	}
	return repack.Unpack(s.Context(), fetched, s.TempDir(), repack.DefaultLimits())
}
