// SPDX-License-Identifier: Apache-2.0

package headers

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inside tells what of an image's layer leads out of it.
func inside(t *testing.T, made *Headers) {
	t.Helper()
	layers, err := made.Image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if name := "/" + header.Name + "/"; strings.Contains(name, "/../") || strings.HasPrefix(header.Name, "/") {
			t.Errorf("the entry %q leads out of the image", header.Name)
		}
	}
}

// FuzzPackage: any file is a package, or an error.
func FuzzPackage(f *testing.F) {
	for _, file := range append(debs(f, debian()), writeRPM(f)) {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte("!<arch>\ndebian-binary   0           0     0     100644  4         `\n2.0\n"))
	f.Add([]byte("\xed\xab\xee\xdb\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file := filepath.Join(t.TempDir(), "package")
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if made, err := Make(t.TempDir(), file); err == nil {
			inside(t, made)
		}
	})
}

// FuzzHeaders: whatever is in a package's files, links and names, an image has no way out.
func FuzzHeaders(f *testing.F) {
	f.Add("6.1.0-9-amd64", "include /usr/src/linux-headers-6.1/Kbuild\n", "usr/src/linux-headers-6.1/scripts", "Kbuild")
	f.Add("../../../etc", "", "", "")
	f.Add("6.1/../../../..", "include /usr/src/../../etc/passwd\n", "/../../etc", "../usr/src/x")
	f.Fuzz(func(t *testing.T, release, makefile, name, link string) {
		const root = "usr/src/linux-headers-6.1/"
		for _, text := range []string{name, link} {
			if strings.ContainsRune(text, 0) || len(text) > 90 || strings.HasSuffix(text, "/") {
				t.Skip("no name of an archive")
			}
		}
		files := []file{
			{name: root + "include/generated/utsrelease.h", content: fmt.Sprintf("#define UTS_RELEASE \"%s\"\n", release)},
			{name: root + "Makefile", content: makefile}, {name: root + "Kbuild", content: "x"},
		}
		if name != "" {
			files = append(files, file{name: name, link: link, content: "x"})
			if link != "" {
				files[len(files)-1].content = ""
			}
		}
		packages := debs(t, map[string][]file{"linux-headers_amd64.deb": files})
		if made, err := Make(t.TempDir(), packages...); err == nil {
			inside(t, made)
		}
	})
}
