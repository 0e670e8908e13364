// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestProgramsOfAnotherCompilerAreNamed, wherever they are: this test's own program, alone, in an
// archive, and an image's SBOM.
func TestProgramsOfAnotherCompilerAreNamed(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	var packed, zipped bytes.Buffer
	squeezed := gzip.NewWriter(&packed)
	archive := tar.NewWriter(squeezed)
	must(t, archive.WriteHeader(&tar.Header{Name: "drover", Mode: 0o755, Size: int64(len(content))}))
	_, err = archive.Write(content)
	must(t, err)
	must(t, archive.Close())
	must(t, squeezed.Close())
	others := zip.NewWriter(&zipped)
	entry, err := others.Create("drover.exe")
	must(t, err)
	_, err = entry.Write(content)
	must(t, err)
	must(t, others.Close())
	mine := strings.TrimPrefix(runtime.Version(), "go")
	mine, _, _ = strings.Cut(mine, " ")
	for name, file := range map[string]string{
		"a program": own,
		"a tarball": write("a.tar.gz", packed.Bytes()),
		"a zip":     write("a.zip", zipped.Bytes()),
		"an SBOM":   write("a.spdx.json", []byte(`{"packages":[{"name":"a"},{"name":"stdlib","versionInfo":"`+mine+`"}]}`)),
		"a folder":  dir,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(&out, []string{"--go", mine, file}); err != nil || !strings.Contains(out.String(), "compiled with Go "+mine) {
				t.Errorf("%v: %s", err, out.String())
			}
			err := run(&out, []string{"--go", "1.99.1", file})
			if want := "is compiled with Go " + mine + " instead of 1.99.1"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in: %v", want, err)
			}
		})
	}
	err = run(&bytes.Buffer{}, []string{"--go", mine, own, write("empty", nil)})
	if err == nil || !strings.Contains(err.Error(), "empty has no program") {
		t.Errorf("a file without a program: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
