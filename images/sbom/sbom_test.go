// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/drover-project/drover/images/licence"
)

// imageOf holds files, content by path.
func imageOf(t *testing.T, files map[string]string) v1.Image {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[name]))})
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "arm64", OS: "linux"})
	if err == nil {
		image, err = mutate.AppendLayers(image, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// licences of modules, by path; the repository is under MIT.
type licences map[string]string

func (licences) Own() (string, error) { return "MIT", nil }

func (l licences) Module(path, _ string) (string, error) {
	if id, ok := l[path]; ok {
		return id, nil
	}
	return "", fmt.Errorf("%w: %s", licence.ErrNone, path)
}

// describe makes the document of an image of these files.
func describe(t *testing.T, files map[string]string, known Licences) ([]byte, v2_3.Document) {
	t.Helper()
	text, err := Describe(imageOf(t, files), About{Name: "sample", Version: "v1.2.3", Created: time.Unix(1e9, 0), Licences: known})
	if err != nil {
		t.Fatal(err)
	}
	var document v2_3.Document
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(&document); err != nil {
		t.Errorf("not a valid document: %v", err)
	}
	return text, document
}

func packageNamed(document v2_3.Document, name string) *v2_3.Package {
	for _, p := range document.Packages {
		if p.PackageName == name {
			return p
		}
	}
	return nil
}

// program is one with modules, and what the linker says of it.
func program(t *testing.T) (string, *debug.BuildInfo) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../cmd/kmod-image").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, said)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil || len(info.Deps) == 0 {
		t.Fatalf("the program has no modules, %v", err)
	}
	return string(data), info
}

func TestEveryLinkedModuleIsListed(t *testing.T) {
	binary, info := program(t)
	const path = "github.com/google/go-containerregistry"
	_, document := describe(t, map[string]string{"/usr/local/bin/sample": binary}, licences{path: "BSD-3-Clause"})
	for _, m := range info.Deps {
		p := packageNamed(document, m.Path)
		if p == nil || p.PackageVersion != m.Version || !strings.Contains(p.PackageSourceInfo, m.Sum) {
			t.Errorf("module %s %s is %+v", m.Path, m.Version, p)
			continue
		}
		want := map[bool]string{true: "BSD-3-Clause", false: unknown}[m.Path == path]
		if p.PackageLicenseDeclared != want {
			t.Errorf("module %s is under %s, want %s", m.Path, p.PackageLicenseDeclared, want)
		}
	}
	if own := packageNamed(document, info.Main.Path); own == nil || own.PackageVersion != "v1.2.3" || own.PackageLicenseDeclared != "MIT" {
		t.Errorf("the program's own module is %+v", own)
	}
	if library := packageNamed(document, "stdlib"); library == nil || !strings.Contains(info.GoVersion, library.PackageVersion) {
		t.Errorf("the standard library is %+v", library)
	}
	if len(document.Packages) != len(info.Deps)+3 { // the image, the program's module, the standard library
		t.Errorf("%d packages for %d modules", len(document.Packages), len(info.Deps))
	}
	got := document.Files[0]
	if got.FileName != "./usr/local/bin/sample" || got.Checksums[1].Value != fmt.Sprintf("%x", sha256.Sum256([]byte(binary))) {
		t.Errorf("file %+v", got)
	}
}

// TestAChangedFileChangesTheDocument, and nothing else does.
func TestAChangedFileChangesTheDocument(t *testing.T) {
	binary, _ := program(t)
	first, document := describe(t, map[string]string{"/bin/a": binary, "/etc/b": "one"}, licences{})
	again, _ := describe(t, map[string]string{"/bin/a": binary, "/etc/b": "one"}, licences{})
	if !bytes.Equal(first, again) {
		t.Error("the same image is described in two ways")
	}
	other, changed := describe(t, map[string]string{"/bin/a": binary + "\x00", "/etc/b": "one"}, licences{})
	if bytes.Equal(first, other) || document.DocumentNamespace == changed.DocumentNamespace {
		t.Error("two programs have one document")
	}
	if document.Files[0].Checksums[1] == changed.Files[0].Checksums[1] || document.Files[1].Checksums[1] != changed.Files[1].Checksums[1] {
		t.Errorf("files %+v and %+v", document.Files, changed.Files)
	}
}

const control = "Package: liblzma5\nVersion: 5.4.1-1+deb12u1\nArchitecture: arm64\nDescription: compression\n Version: no\n"

// osRelease is an os-release of a distribution.
const osRelease = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n"

// TestPackagesAreOfTheImagesDistribution, whichever it is: what a scanner looks up goes by it.
func TestPackagesAreOfTheImagesDistribution(t *testing.T) {
	for text, want := range map[string][]string{
		osRelease: {"Debian GNU/Linux", "pkg:deb/debian/liblzma5@5.4.1-1%2Bdeb12u1?arch=arm64&distro=debian-12"},
		"NAME='Ubuntu'\nID=ubuntu\nVERSION_ID=\"24.04\"\n": {"Ubuntu",
			"pkg:deb/ubuntu/liblzma5@5.4.1-1%2Bdeb12u1?arch=arm64&distro=ubuntu-24.04"},
	} {
		_, document := describe(t, map[string]string{OSRelease: text, PackageDir + "/liblzma5": control}, licences{})
		p := packageNamed(document, "liblzma5")
		if diff := cmp.Diff(want, []string{p.PackageSupplier.Supplier, p.PackageExternalReferences[0].Locator}); diff != "" {
			t.Error(diff)
		}
	}
}

func TestPackagesOfDebian(t *testing.T) {
	_, document := describe(t, map[string]string{
		OSRelease:                           osRelease,
		"/usr/lib/liblzma.so.5":             "library",
		PackageDir + "/liblzma5":            control,
		PackageDir + "/liblzma5.md5sums":    "d41d8cd98f00b204e9800998ecf8427e  usr/lib/liblzma.so.5\n",
		"/usr/share/doc/liblzma5/copyright": "text",
	}, licences{})
	p := packageNamed(document, "liblzma5")
	if p == nil || p.PackageVersion != "5.4.1-1+deb12u1" || p.PackageLicenseDeclared != "LicenseRef-public-domain" ||
		p.PackageExternalReferences[0].Locator != "pkg:deb/debian/liblzma5@5.4.1-1%2Bdeb12u1?arch=arm64&distro=debian-12" {
		t.Fatalf("package %+v", p)
	}
	if len(document.OtherLicenses) != 1 || document.OtherLicenses[0].ExtractedText == "" {
		t.Errorf("a licence that SPDX does not know has no text: %+v", document.OtherLicenses)
	}
	var holds []string
	for _, r := range document.Relationships {
		if r.RefA.ElementRefID == p.PackageSPDXIdentifier {
			holds = append(holds, r.Relationship+" "+string(r.RefB.ElementRefID))
		}
	}
	if diff := cmp.Diff([]string{"CONTAINS File-usr-lib-liblzma.so.5"}, holds); diff != "" {
		t.Errorf("relationships of the package (-want +got):\n%s", diff)
	}
}

type broken struct{ licences }

var errBroken = errors.New("disk full")

func (broken) Module(string, string) (string, error) { return "", errBroken }

func TestDescribeRefuses(t *testing.T) {
	binary, _ := program(t)
	for _, test := range []struct {
		given string
		files map[string]string
		known Licences
		want  string
	}{
		{"a paragraph of another package", map[string]string{PackageDir + "/kmod": control}, licences{}, "does not describe package kmod"},
		{"packages of nowhere", map[string]string{PackageDir + "/liblzma5": control}, licences{}, "does not say of which distribution"},
		{"a package whose file is not there", map[string]string{
			OSRelease: osRelease, PackageDir + "/liblzma5": control, PackageDir + "/liblzma5.md5sums": "00  usr/lib/x\n",
		}, licences{}, "which is not in the image"},
		{"licences that cannot be read", map[string]string{"/bin/a": binary}, broken{}, errBroken.Error()},
	} {
		_, err := Describe(imageOf(t, test.files), About{Name: "sample", Version: "v1", Licences: test.known})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v", test.given, err)
		}
	}
}

// TestSourcesOf: a folder of the machine is named nowhere.
func TestSourcesOf(t *testing.T) {
	for _, test := range []struct {
		given               string
		module              debug.Module
		path, version, name string
	}{
		{"as it is", debug.Module{Path: "a", Version: "v1", Sum: "h1:x"}, "a", "v1", "h1:x"},
		{"another module instead", debug.Module{Path: "a", Version: "v1", Replace: &debug.Module{Path: "b", Version: "v2", Sum: "h1:y"}},
			"b", "v2", "h1:y"},
		{"a folder instead", debug.Module{Path: "a", Version: "v0.0.0", Replace: &debug.Module{Path: "/home/me/a"}}, "a", "", ""},
		{"a folder instead, as the go command says it", debug.Module{
			Path: "a", Version: "v0.0.0", Replace: &debug.Module{Path: "../a", Version: "(devel)"},
		}, "a", "", ""},
		{"a folder of a workspace", debug.Module{Path: "a", Version: "(devel)"}, "a", "", ""},
	} {
		if path, version, sum := sourcesOf(&test.module); path != test.path || version != test.version || sum != test.name {
			t.Errorf("%s: %q %q %q", test.given, path, version, sum)
		}
	}
}
