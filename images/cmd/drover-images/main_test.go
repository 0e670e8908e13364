// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/drover-project/drover/images"
)

func TestRunPushesForEveryProcessor(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	dir := t.TempDir()
	var out bytes.Buffer
	err := run(t.Context(), &out, []string{
		"--repository", "../../..", "--binary-dir", filepath.Join(dir, "bin"), "--version", "v1.0.0+test",
		"--only", "pause", "--push", host + "/drover", "--tarball-dir", filepath.Join(dir, "tar"), "--layout-dir", filepath.Join(dir, "oci"),
		"--sbom-dir", filepath.Join(dir, "sbom"),
	})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/drover/pause:v1.0.0_test")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != arch {
			t.Errorf("asked for %s, pulled %s", arch, config.Architecture)
		}
	}
	var places []string
	for line := range strings.Lines(out.String()) {
		place, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		places = append(places, place)
	}
	want := []string{
		filepath.Join(dir, "tar", "pause-amd64.tar"), filepath.Join(dir, "tar", "pause-arm64.tar"),
		filepath.Join(dir, "sbom", "pause-amd64.spdx.json"), filepath.Join(dir, "sbom", "pause-arm64.spdx.json"),
		filepath.Join(dir, "sbom", "pause.provenance.json"), filepath.Join(dir, "oci", "pause"), tag.String(),
	}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Errorf("reported places (-want +got):\n%s", diff)
	}
}

func TestRunRefusesBeforeItBuilds(t *testing.T) {
	for given, args := range map[string][]string{
		"no place to put images": {"--only", "pause"},
		"an image unknown":       {"--only", "pause,nothing", "--layout-dir", t.TempDir()},
		"a stray argument":       {"--layout-dir", t.TempDir(), "pause"},
	} {
		if err := run(t.Context(), &bytes.Buffer{}, args); err == nil {
			t.Errorf("%s: no error", given)
		}
	}
}

func TestTagBaseNamesTheImage(t *testing.T) {
	for _, test := range []struct {
		given   string
		options options
		image   string
		want    string
	}{
		{"files only", options{version: "v1+x"}, "pause", "localhost/drover/pause:v1_x"},
		{"a registry", options{push: "r.example.com/team", version: "v1"}, "pause", "r.example.com/team/pause:v1"},
		{"one image, named whole", options{only: "pause", tagBase: "r.example.com:5000/team/mine", tag: "2"}, "pause",
			"r.example.com:5000/team/mine:2"},
		{"a device operator's image", options{project: "card", image: "r.example.com:5000/acme/card:3", version: "v1"}, "card",
			"r.example.com:5000/acme/card:3"},
		{"all images: the operator is named", options{tagBase: "r.example.com/team/mine", tag: "2"}, "drover-operator",
			"r.example.com/team/mine:2"},
		{"all images: the others lie beside it", options{tagBase: "r.example.com/team/mine", tag: "2", push: "r.example.com/team/"},
			"drover-agent", "r.example.com/team/drover-agent:2"},
	} {
		if tag := test.options.imageTag(); !strings.HasSuffix(test.want, ":"+tag) {
			t.Errorf("%s: tag %s of %s", test.given, tag, test.want)
		}
		if got := test.options.reference(images.Program{Name: test.image}); got != test.want {
			t.Errorf("%s: %s, want %s", test.given, got, test.want)
		}
	}
}
