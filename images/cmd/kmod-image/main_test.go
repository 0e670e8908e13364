// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestRunPushesOrSaves(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	reference := strings.TrimPrefix(server.URL, "http://") + "/sample:1.0-6.12.57_deb12-amd64"
	module := filepath.Join(t.TempDir(), "sample.ko")
	if err := os.WriteFile(module, []byte("module"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	args := []string{"--kernel", "6.12.57+deb12-amd64", "--arch", "amd64", "--image", reference}
	var pushed, saved bytes.Buffer
	if err := run(t.Context(), &pushed, append(args, module)); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), &saved, append(args, "--tarball", file, module)); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	remoteImage, err := remote.Image(tag)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := remoteImage.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reference+" "+digest.String()+"\n", pushed.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(file+" "+digest.String()+"\n", saved.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if _, err := tarball.ImageFromPath(file, &tag); err != nil {
		t.Errorf("saved image: %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	for given, args := range map[string][]string{
		"no modules":                 {"--kernel", "6.1.0", "--image", "example.com/a:1"},
		"no kernel":                  {"--image", "example.com/a:1", "a.ko"},
		"two modules of one name":    {"--kernel", "6.1.0", "--image", "example.com/a:1", "x/a.ko", "y/a.ko"},
		"a module that is not there": {"--kernel", "6.1.0", "--image", "example.com/a:1", "missing.ko"},
		"a tag with a plus sign":     {"--kernel", "6.1.0+", "--image", "example.com/a:1+2", "--tarball", "x.tar", os.Args[0]},
	} {
		if err := run(t.Context(), io.Discard, args); err == nil {
			t.Errorf("%s: no error", given)
		}
	}
}
