// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestEqualSpecsGiveEqualDigests(t *testing.T) {
	spec := Spec{
		Files:      map[string]File{"/bin/tool": Program([]byte("ELF")), "/opt/lib/x.ko": {Content: []byte("ko")}, "/opt/link": {Link: "lib/x.ko"}},
		Entrypoint: []string{"/bin/tool"}, User: "65532",
	}
	digest := func(spec Spec) string {
		image, err := Image(spec)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return hash.String()
	}
	first := digest(spec)
	if second := digest(spec); first != second {
		t.Errorf("digests differ: %s, %s", first, second)
	}
	spec.User = "0"
	if digest(spec) == first {
		t.Error("another user, the same digest")
	}
}

func TestImageRefusesRelativePaths(t *testing.T) {
	if _, err := Image(Spec{Files: map[string]File{"bin/tool": {}}}); err == nil {
		t.Error("accepted")
	}
}

func TestContentSurvivesDownAndUp(t *testing.T) {
	r, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Down(); err != nil {
			t.Error(err)
		}
	})
	image, err := Image(Spec{Files: map[string]File{"/a": {Content: []byte("b")}}})
	if err != nil {
		t.Fatal(err)
	}
	tagged, pinned, err := r.Push(t.Context(), "some/image:1", image)
	if err != nil {
		t.Fatal(err)
	}
	if tagged != "registry.test/some/image:1" || !strings.HasPrefix(pinned, "registry.test/some/image@sha256:") {
		t.Errorf("references %s and %s", tagged, pinned)
	}
	manifest := fmt.Sprintf("http://127.0.0.1:%d/v2/some/image/manifests/1", r.Port())
	if err := r.Down(); err != nil {
		t.Fatal(err)
	}
	if response, err := http.Get(manifest); err == nil {
		t.Errorf("answers %s while down; closing: %v", response.Status, response.Body.Close())
	}
	if err := r.Up(); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("status %s, %v", response.Status, err)
	}
}
