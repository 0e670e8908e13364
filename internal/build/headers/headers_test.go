// SPDX-License-Identifier: Apache-2.0

package headers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/rpmpack"
)

const (
	utsrelease = "#define UTS_RELEASE \"6.1.0-9-amd64\"\n"
	built      = 1700000000
)

// file is one entry of a package in a test; a link when it has a target, a folder when its name
// ends so.
type file struct{ name, content, link string }

// debian are the three packages of a kernel's headers, in small.
func debian() map[string][]file {
	return map[string][]file{
		"linux-headers-6.1.0-9-amd64_amd64.deb": {
			{name: "lib/modules/6.1.0-9-amd64/build", link: "/usr/src/linux-headers-6.1.0-9-amd64"},
			{name: "usr/share/doc/linux-headers-6.1.0-9-amd64/copyright", content: "not for compiling"},
			{name: "usr/src/linux-headers-6.1.0-9-amd64/"},
			{name: "usr/src/linux-headers-6.1.0-9-amd64/include/generated/utsrelease.h", content: utsrelease},
			{name: "usr/src/linux-headers-6.1.0-9-amd64/Makefile", content: "include /usr/src/linux-headers-6.1.0-9-common/Makefile\n"},
			{name: "usr/src/linux-headers-6.1.0-9-amd64/scripts", link: "../../lib/linux-kbuild-6.1/scripts"},
		},
		"linux-headers-6.1.0-9-common_all.deb": {{name: "usr/src/linux-headers-6.1.0-9-common/Makefile", content: "all:\n\techo built\n"}},
		"linux-kbuild-6.1_amd64.deb":           {{name: "usr/lib/linux-kbuild-6.1/scripts/modpost", content: "program"}},
	}
}

func TestHeadersOfADistributionBecomeAnImageThatWorksWhereverItIsMounted(t *testing.T) {
	tests := []struct {
		name     string
		packages []string
		// the image's files and links, beside those of the packages that need no change
		want         map[string]string
		kernel, arch string
	}{
		{
			name: "Debian's three packages", packages: debs(t, debian()), kernel: "6.1.0-9-amd64", arch: "amd64",
			want: map[string]string{
				"Makefile":                        "-> usr/src/linux-headers-6.1.0-9-amd64/Makefile",
				"include":                         "-> usr/src/linux-headers-6.1.0-9-amd64/include",
				"scripts":                         "-> usr/src/linux-headers-6.1.0-9-amd64/scripts",
				"lib/modules/6.1.0-9-amd64/build": "-> ../../../usr/src/linux-headers-6.1.0-9-amd64",
				"usr/lib/linux-kbuild-6.1/scripts/modpost": "program",
				"usr/src/linux-headers-6.1.0-9-amd64/":     "",
				"usr/src/linux-headers-6.1.0-9-amd64/Makefile": "include $(dir $(realpath $(lastword " +
					"$(MAKEFILE_LIST))))../linux-headers-6.1.0-9-common/Makefile\n",
				"usr/src/linux-headers-6.1.0-9-amd64/include/generated/utsrelease.h": utsrelease,
				"usr/src/linux-headers-6.1.0-9-amd64/scripts":                        "-> ../../lib/linux-kbuild-6.1/scripts",
				"usr/src/linux-headers-6.1.0-9-common/Makefile":                      "all:\n\techo built\n",
			},
		},
		{
			name: "Ubuntu's, without the package for modules in Rust", packages: debs(t, map[string][]file{
				"linux-headers-6.1.0-9-amd64_amd64.deb": {
					{name: "usr/src/linux-headers-6.1.0-9-amd64/include/generated/utsrelease.h", content: utsrelease},
					{name: "usr/src/linux-headers-6.1.0-9-amd64/rust", link: "../linux-lib-rust-6.1.0-9-amd64/rust"},
				},
			}), kernel: "6.1.0-9-amd64", arch: "amd64",
			want: map[string]string{
				"include":                         "-> usr/src/linux-headers-6.1.0-9-amd64/include",
				"rust":                            "-> usr/src/linux-headers-6.1.0-9-amd64/rust",
				"lib/modules/6.1.0-9-amd64/build": "-> ../../../usr/src/linux-headers-6.1.0-9-amd64",
				"usr/src/linux-headers-6.1.0-9-amd64/include/generated/utsrelease.h": utsrelease,
				"usr/src/linux-headers-6.1.0-9-amd64/rust":                           "-> ../linux-lib-rust-6.1.0-9-amd64/rust",
			},
		},
		{
			name: "Fedora's one package", packages: []string{writeRPM(t)}, kernel: "6.1.0-9-amd64", arch: "arm64",
			want: map[string]string{
				"Makefile":                        "-> usr/src/kernels/6.1/Makefile",
				"include":                         "-> usr/src/kernels/6.1/include",
				"lib/modules/6.1.0-9-amd64/build": "-> ../../../usr/src/kernels/6.1",
				"usr/src/kernels/6.1/Makefile":    "all:\n",
				"usr/src/kernels/6.1/include/generated/utsrelease.h": utsrelease,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			made, err := Make(t.TempDir(), tt.packages...)
			if err != nil {
				t.Fatal(err)
			}
			if made.Kernel != tt.kernel || made.Architecture != tt.arch {
				t.Errorf("headers of %s for %s instead of %s for %s", made.Kernel, made.Architecture, tt.kernel, tt.arch)
			}
			if diff := cmp.Diff(tt.want, content(t, made.Image)); diff != "" {
				t.Errorf("the image holds (-want +got):\n%s", diff)
			}
			config, err := made.Image.ConfigFile()
			if err != nil || config.OS != "linux" || config.Architecture != tt.arch {
				t.Errorf("the image is for %s/%s (%v)", config.OS, config.Architecture, err)
			}
		})
	}
}

func TestEqualPackagesGiveEqualImages(t *testing.T) {
	packages := debs(t, debian())
	digest := func(packages ...string) v1.Hash {
		made, err := Make(t.TempDir(), packages...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := made.Image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if one, other := digest(packages...), digest(packages[2], packages[0], packages[1]); one != other {
		t.Errorf("%s, and in another order %s", one, other)
	}
}

func TestPackagesThatAreNoHeadersAreRefused(t *testing.T) {
	all := debian()
	headers, common, kbuild := "linux-headers-6.1.0-9-amd64_amd64.deb", "linux-headers-6.1.0-9-common_all.deb", "linux-kbuild-6.1_amd64.deb"
	change := func(name string, with ...file) map[string][]file {
		changed := debian()
		changed[name] = append(changed[name], with...)
		return changed
	}
	tests := []struct {
		name     string
		packages map[string][]file
		says     string
	}{
		{"a package is missing", map[string][]file{headers: all[headers], common: all[common]}, "lack usr/lib/linux-kbuild-6.1/scripts (for " +
			"usr/src/linux-headers-6.1.0-9-amd64/scripts)"},
		{"an included Makefile is missing", map[string][]file{headers: all[headers], kbuild: all[kbuild]},
			"usr/src/linux-headers-6.1.0-9-common/Makefile (for usr/src/linux-headers-6.1.0-9-amd64/Makefile)"},
		{"no header tree", map[string][]file{common: all[common], kbuild: all[kbuild]}, "hold 0 header trees"},
		{"two kernels", change(common, file{name: "usr/src/other/include/generated/utsrelease.h",
			content: strings.ReplaceAll(utsrelease, "-9-", "-8-")}), "hold 2 header trees"},
		{"a file twice", change(kbuild, file{name: "usr/src/linux-headers-6.1.0-9-common/Makefile", content: "another"}), "is in two packages"},
		{"a way out", change(kbuild, file{name: "../../usr/src/linux-headers-6.1.0-9-common/Makefile", content: "another"}),
			"is in two packages"},
		{"two architectures", map[string][]file{headers: all[headers], common: all[common], "linux-kbuild-6.1_arm64.deb": all[kbuild]},
			"two architectures"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Make(t.TempDir(), debs(t, tt.packages)...); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the error is %v and does not say %q", err, tt.says)
			}
		})
	}
	other := filepath.Join(t.TempDir(), "text.deb")
	if err := os.WriteFile(other, []byte("just some text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(t.TempDir(), other); err == nil || !strings.Contains(err.Error(), "neither a .deb nor an .rpm") {
		t.Errorf("the error of a text is %v", err)
	}
}

// content of an image's layer, links with their targets.
func content(t testing.TB, image v1.Image) map[string]string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers: %v", len(layers), err)
	}
	stream, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	found := map[string]string{}
	for archive := tar.NewReader(stream); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeSymlink {
			text = []byte("-> " + header.Linkname)
		}
		found[header.Name] = string(text)
	}
}

// debs writes packages as dpkg does: an ar archive of a version, the control file and the files.
func debs(t testing.TB, packages map[string][]file) []string {
	t.Helper()
	var paths []string
	dir := t.TempDir()
	for name, files := range packages {
		arch := strings.TrimSuffix(name[strings.LastIndex(name, "_")+1:], ".deb")
		control := fmt.Sprintf("Package: p\nVersion: 1\nArchitecture: %s\nMaintainer: nobody\nDescription: a test\n", arch)
		var out bytes.Buffer
		out.WriteString("!<arch>\n")
		for _, member := range []struct {
			name    string
			content []byte
		}{
			{"debian-binary", []byte("2.0\n")},
			{"control.tar.gz", archive(t, []file{{name: "control", content: control}})},
			{"data.tar.gz", archive(t, files)},
		} {
			fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", member.name, built, 0, 0, 0o644, len(member.content))
			out.Write(member.content)
			if len(member.content)%2 == 1 {
				out.WriteByte('\n')
			}
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func archive(t testing.TB, files []file) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	writer := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Name: "./" + f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.content)), ModTime: time.Unix(built, 0)}
		switch {
		case f.link != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777
		case strings.HasSuffix(f.name, "/"):
			header.Typeflag, header.Mode = tar.TypeDir, 0o755
		}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(writer, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func writeRPM(t testing.TB) string {
	t.Helper()
	pkg, err := rpmpack.NewRPM(rpmpack.RPMMetaData{Name: "kernel-devel", Version: "6.1", Release: "1", Arch: "aarch64", Compressor: "zstd",
		BuildTime: time.Unix(built, 0)})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"Makefile": "all:\n", "include/generated/utsrelease.h": utsrelease} {
		pkg.AddFile(rpmpack.RPMFile{Name: "/usr/src/kernels/6.1/" + name, Body: []byte(content), Mode: 0o644, MTime: built})
	}
	path := filepath.Join(t.TempDir(), "kernel-devel.rpm")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pkg.Write(out), out.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}
