// SPDX-License-Identifier: Apache-2.0

//go:build compare

package images

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-project/drover/images/sbom"
)

// unpacked lays this machine's kmod out as if it came in packages: libraries under links, absolute
// ones among them.
func unpacked(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("kmod")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	place := func(local, target string) {
		data, err := os.ReadFile(local)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, target)), 0o755), os.WriteFile(filepath.Join(dir, target), data, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	place(program, "kmod/bin/kmod")
	output, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v", program, err)
	}
	for line := range strings.Lines(string(output)) {
		for _, word := range strings.Fields(line) {
			if !strings.HasPrefix(word, "/") {
				continue
			}
			place(word, filepath.Join("libs/lib/there", filepath.Base(word)+".1.2"))
			if err := os.Symlink("/lib/there/"+filepath.Base(word)+".1.2", filepath.Join(dir, "libs/lib", filepath.Base(word))); err != nil {
				t.Fatal(err)
			}
		}
	}
	place(os.DevNull, "kmod/usr/share/doc/kmod/copyright")
	return dir
}

// TestKmodRunsWithItsFilesAlone in a root directory that holds nothing else.
func TestKmodRunsWithItsFilesAlone(t *testing.T) {
	files, err := KmodFiles(unpacked(t))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(slices.Collect(maps.Keys(files)), "/usr/share/doc/kmod/copyright") {
		t.Error("the licence's text is missing")
	}
	if os.Geteuid() != 0 {
		t.Fatal("changing the root directory needs root")
	}
	root := t.TempDir()
	for target, local := range files {
		data, err := os.ReadFile(local)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, target)), 0o755), os.WriteFile(filepath.Join(root, target), data, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(chroot, root, KmodProgram, "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(output), "kmod version") {
		t.Errorf("error %v, it says %s", err, output)
	}
}

func TestKmodFilesMissing(t *testing.T) {
	dir := unpacked(t)
	if err := os.RemoveAll(filepath.Join(dir, "libs/lib/there")); err != nil {
		t.Fatal(err)
	}
	if _, err := KmodFiles(dir); err == nil || !strings.Contains(err.Error(), "in none of its packages") {
		t.Errorf("error %v", err)
	}
}

// TestPackagesAreBelievedByDigestOnly: a mirror that has another file under the name is passed
// over, the next one asked; without any, the error names each.
func TestPackagesAreBelievedByDigestOnly(t *testing.T) {
	content := []byte("a package")
	serve := func(content []byte) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/debian/pool/k.deb" {
				t.Errorf("asked for %s", r.URL.Path)
			}
			_, _ = w.Write(content)
		}))
		t.Cleanup(server.Close)
		return server.URL + "/{archive}/{path}"
	}
	good, bad := serve(content), serve([]byte("another"))
	p := &pin{name: "k", version: "1", sha256: fmt.Sprintf("%x", sha256.Sum256(content)), archive: "debian", path: "pool/k.deb"}
	file := filepath.Join(t.TempDir(), "k.deb")
	if err := p.download(t.Context(), bad+" "+good, "", file); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(content) {
		t.Errorf("%q, %v", got, err)
	}
	err := p.download(t.Context(), bad, "", file+"2")
	if err == nil || !strings.Contains(err.Error(), "Hash Sum mismatch") || !strings.Contains(err.Error(), "fetch k 1 (") {
		t.Errorf("error %v", err)
	}
}

// TestTheSameBytesEveryTime: what the lock names is fetched twice, and both images are one.
func TestTheSameBytesEveryTime(t *testing.T) {
	var digests []string
	for range 2 {
		dir := t.TempDir()
		if err := FetchKmod(t.Context(), dir, "amd64"); err != nil {
			t.Fatal(err)
		}
		files, err := KmodFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		image, err := KmodImage(files, "amd64")
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
		contents, err := sbom.Read(image)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range contents.Packages {
			if p.Of.ID != "debian" || len(p.Files) == 0 {
				t.Errorf("package %+v", p)
			}
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two images: %v", digests)
	}
}
