// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// write makes a local file and returns its path.
func write(t *testing.T, content string, mode os.FileMode, changed time.Time) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, changed, changed); err != nil {
		t.Fatal(err)
	}
	return file
}

func digest(t *testing.T, image interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	hash, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

// content lists an image's files as "mode path" with what they hold; folders hold nothing.
func content(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	flat := mutate.Extract(image)
	defer func() {
		if err := flat.Close(); err != nil {
			t.Error(err)
		}
	}()
	found := map[string]string{}
	for archive := tar.NewReader(flat); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if entry.ModTime.Unix() != 0 || entry.Uid != 0 || entry.Gid != 0 || entry.Uname != "" {
			t.Errorf("%s carries a time or an owner: %v", entry.Name, entry)
		}
		found[entry.FileInfo().Mode().String()+" "+entry.Name] = string(data)
	}
}

const kernel = "6.12.57+deb12-amd64"

func kmodFiles(t *testing.T, mode os.FileMode, changed time.Time) map[string]string {
	t.Helper()
	return map[string]string{
		KmodPath(kernel, "extra/sample.ko"): write(t, "module", mode, changed),
		KmodPath(kernel, "modules.dep"):     write(t, "extra/sample.ko:\n", mode, changed),
		"/firmware/sample.bin":              write(t, "firmware", mode, changed),
	}
}

func kmodImage(t *testing.T, files map[string]string, arch string) v1.Image {
	t.Helper()
	image, err := KmodImage(files, arch)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestKmodImageHoldsExactlyTheFiles(t *testing.T) {
	files := kmodFiles(t, 0o600, time.Now())
	files["/bin/sh"] = write(t, "shell", 0o700, time.Now())
	image := kmodImage(t, files, "amd64")
	want := map[string]string{
		"drwxr-xr-x bin":                                            "",
		"drwxr-xr-x firmware":                                       "",
		"drwxr-xr-x opt":                                            "",
		"drwxr-xr-x opt/lib":                                        "",
		"drwxr-xr-x opt/lib/modules":                                "",
		"drwxr-xr-x opt/lib/modules/" + kernel:                      "",
		"drwxr-xr-x opt/lib/modules/" + kernel + "/extra":           "",
		"-rw-r--r-- opt/lib/modules/" + kernel + "/extra/sample.ko": "module",
		"-rw-r--r-- opt/lib/modules/" + kernel + "/modules.dep":     "extra/sample.ko:\n",
		"-rw-r--r-- firmware/sample.bin":                            "firmware",
		"-rwxr-xr-x bin/sh":                                         "shell",
	}
	if diff := cmp.Diff(want, content(t, image)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

func TestSameFilesGiveTheSameDigest(t *testing.T) {
	first := kmodImage(t, kmodFiles(t, 0o600, time.Now()), "amd64")
	second := kmodImage(t, kmodFiles(t, 0o664, time.Unix(1e9, 0)), "amd64")
	if a, b := digest(t, first), digest(t, second); a != b {
		t.Errorf("digests %s and %s of the same content", a, b)
	}
	other := kmodImage(t, kmodFiles(t, 0o600, time.Now()), "arm64")
	if digest(t, first) == digest(t, other) {
		t.Error("images for two processors have one digest")
	}
}

func TestImageRefuses(t *testing.T) {
	file := write(t, "x", 0o644, time.Now())
	for given, files := range map[string]map[string]string{
		"a relative path":              {"opt/x": file},
		"a path that leads upwards":    {"/opt/../x": file},
		"the root":                     {"/": file},
		"a file that is not there":     {"/x": filepath.Join(t.TempDir(), "missing")},
		"a folder in place of a file":  {"/x": t.TempDir()},
		"a path both file and folder":  {"/x": file, "/x/y": file},
		"a device, which has no bytes": {"/x": os.DevNull},
	} {
		if _, err := KmodImage(files, "amd64"); err == nil {
			t.Errorf("%s: no error", given)
		}
	}
}

func startRegistry(t *testing.T, options ...registry.Option) (host string) {
	t.Helper()
	server := httptest.NewServer(registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestPushedImageCanBePulled(t *testing.T) {
	reference := startRegistry(t) + "/drover/sample:1.0-" + Tag(kernel)
	image := kmodImage(t, kmodFiles(t, 0o644, time.Now()), "amd64")
	if err := Push(t.Context(), reference, image); err != nil {
		t.Fatal(err)
	}
	parsed, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(parsed)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(pulled); err != nil {
		t.Errorf("not a valid image: %v", err)
	}
	if a, b := digest(t, image), digest(t, pulled); a != b {
		t.Errorf("pushed %s, pulled %s", a, b)
	}
	if diff := cmp.Diff(content(t, image), content(t, pulled)); diff != "" {
		t.Errorf("content (-pushed +pulled):\n%s", diff)
	}
}

func TestPushNamesTheReferenceThatFailed(t *testing.T) {
	image := kmodImage(t, kmodFiles(t, 0o644, time.Now()), "amd64")
	if err := Push(t.Context(), "example.com/a:1+2", image); err == nil {
		t.Error("a tag with a plus sign was accepted")
	}
	server := httptest.NewServer(nil)
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	if err := Push(t.Context(), host+"/a:1", image); err == nil || !strings.Contains(err.Error(), host+"/a:1") {
		t.Errorf("error %v does not name the reference", err)
	}
}

func TestProgramImage(t *testing.T) {
	reader, err := Find("sample-reader")
	if err != nil {
		t.Fatal(err)
	}
	var digests []string
	var image v1.Image
	for range 2 {
		builder := Builder{Repository: "..", Output: t.TempDir(), Version: "v1.2.3"}
		if image, err = builder.Image(t.Context(), reader, "arm64"); err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest(t, image))
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds have the digests %v", digests)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.OS != "linux" || config.Config.User != "65532:65532" ||
		!cmp.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/reader"}) ||
		config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("configuration %+v", config)
	}
}

func TestBuildBinaryReportsTheCompiler(t *testing.T) {
	builder := Builder{Repository: "..", Output: t.TempDir(), Version: "dev"}
	_, err := builder.BuildBinary(t.Context(), "images/missing", "linux", "amd64")
	if err == nil || !strings.Contains(err.Error(), "directory not found") {
		t.Errorf("error %v does not carry the compiler's message", err)
	}
}

// TestProgramsSayTheirVersion, which is the one that the image's label has.
func TestProgramsSayTheirVersion(t *testing.T) {
	builder := Builder{Repository: "..", Output: t.TempDir(), Version: "v1.2.3-test"}
	program, err := builder.BuildBinary(t.Context(), "cmd/drover-signer", runtime.GOOS, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput()
	if got := strings.TrimSpace(string(said)); err != nil || got != builder.Version {
		t.Errorf("the program says %q, want %q (%v)", got, builder.Version, err)
	}
}

// savedIn opens the layout in a folder, and lists what it holds.
func savedIn(t *testing.T, folder string) (v1.ImageIndex, []v1.Descriptor) {
	t.Helper()
	saved, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(saved); err != nil {
		t.Errorf("not a valid layout: %v", err)
	}
	manifest, err := saved.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return saved, manifest.Manifests
}

func TestSavedImagesCanBeReadBack(t *testing.T) {
	image := kmodImage(t, kmodFiles(t, 0o644, time.Now()), "amd64")
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := SaveTarball(file, "registry.example.com/sample:1.0", image); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.example.com/sample:1.0")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content(t, image), content(t, loaded)); diff != "" {
		t.Errorf("tarball's content (-want +got):\n%s", diff)
	}

	folder := filepath.Join(t.TempDir(), "layout")
	index := MultiArch(map[string]v1.Image{"amd64": image})
	for range 2 { // a second time, in place of the first
		if err := SaveLayout(folder, index); err != nil {
			t.Fatal(err)
		}
	}
	if _, held := savedIn(t, folder); len(held) != 1 || held[0].Digest.String() != digest(t, index) {
		t.Errorf("layout holds %v, want one index %s", held, digest(t, index))
	}
}

func TestFindNamesTheImagesThereAre(t *testing.T) {
	if _, err := Find("drover"); err == nil || !strings.Contains(err.Error(), "drover-agent") {
		t.Errorf("error %v does not name the images", err)
	}
}

// TestSignerHasAnImageOfItsOwn: whoever can pull the operator or run it has no tool to sign with,
// and the signer is not root.
func TestSignerHasAnImageOfItsOwn(t *testing.T) {
	signer, err := Find("drover-signer")
	if err != nil {
		t.Fatal(err)
	}
	if signer.Package != "cmd/drover-signer" || len(signer.Beside) > 0 || signer.User != nobody || signer.Kmod {
		t.Errorf("program %+v", signer)
	}
	for _, program := range Programs {
		if program.Name != signer.Name && slices.Contains(append([]string{program.Package}, program.Beside...), signer.Package) {
			t.Errorf("%s holds the signer, too", program.Name)
		}
	}
}

// TestLolcowImageIsNobodys: the page needs no right on its node, and nothing lies beside it.
func TestLolcowImageIsNobodys(t *testing.T) {
	cow, err := Find("lolcow")
	if err != nil {
		t.Fatal(err)
	}
	if cow.Package != "cmd/lolcow" || len(cow.Beside) > 0 || cow.User != nobody || cow.Kmod {
		t.Errorf("program %+v", cow)
	}
}
