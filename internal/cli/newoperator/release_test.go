// SPDX-License-Identifier: Apache-2.0

package newoperator

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drover-project/drover/internal/shared/version"
)

// TestOperatorOfARelease builds, and so does the tool that makes its image. The release is this
// checkout, behind a module proxy of files.
func TestOperatorOfARelease(t *testing.T) {
	release := "v0.0." + strconv.FormatInt(time.Now().UnixNano(), 10) // another one each time: Go's module cache never looks twice
	before := version.Version
	version.Version = release
	t.Cleanup(func() { version.Version = before })
	proxy := published(t, release)
	t.Setenv("GOPROXY", "file://"+proxy+","+strings.TrimSpace(in(t, root, "go", "env", "GOPROXY")))
	t.Setenv("GONOSUMDB", drover)
	dir := filepath.Join(t.TempDir(), "acme")
	out, err := run(t, "acme", "--group", "acme.example.com", "--kind", "Card", "--dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "go mod tidy && make test") {
		t.Errorf("it does not say what to do next: %s", out)
	}
	// As `go mod tidy` does, without the modules that only tests of others need.
	t.Setenv("GOFLAGS", "-mod=mod")
	in(t, dir, "go", "vet", "./...")
	in(t, dir, "go", "build", "-o", t.TempDir(), ".", imageTool)
	if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || bytes.Contains(mod, []byte("replace")) {
		t.Errorf("go.mod (%v):\n%s", err, mod)
	}
}

// published makes a module proxy of files that has this checkout as a release, and takes the
// release out of Go's module cache at the end.
func published(t *testing.T, release string) string {
	t.Helper()
	proxy := t.TempDir()
	at := filepath.Join(proxy, filepath.FromSlash(drover), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(in(t, root, "go", "env", "GOMODCACHE"))
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(cache, "cache", "download", filepath.FromSlash(drover), "@v", release+".*"))
		if err != nil {
			t.Error(err)
		}
		unpacked := filepath.Join(cache, filepath.FromSlash(drover)+"@"+release)
		err = filepath.WalkDir(unpacked, func(path string, entry os.DirEntry, err error) error { // its folders are read-only
			if err == nil && entry.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		for _, path := range append(left, unpacked) {
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
		}
	})
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	names := strings.Split(strings.Trim(in(t, root, "git", "ls-files", "-z", "--full-name", "--cached", "--others", "--exclude-standard"),
		"\x00"), "\x00")
	var nested []string // the folders of Go modules of their own, which a module's archive does not have
	for _, name := range names {
		if folder := strings.TrimSuffix(name, "go.mod"); folder != name && strings.HasSuffix(folder, "/") {
			nested = append(nested, folder)
		}
	}
	for _, name := range names {
		if slices.ContainsFunc(nested, func(folder string) bool { return strings.HasPrefix(name, folder) }) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := w.Create(drover + "@" + release + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for end, content := range map[string][]byte{".zip": archive.Bytes(), ".mod": mod, ".info": fmt.Appendf(nil, `{"Version":%q}`, release)} {
		if err := os.WriteFile(filepath.Join(at, release+end), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return proxy
}

// TestPlacement: within Drover's sources, an operator is made beside them and not among them.
func TestPlacement(t *testing.T) {
	parent := t.TempDir()
	sources := filepath.Join(parent, "drover", "docs")
	if err := os.MkdirAll(sources, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parent, "drover", name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := t.TempDir()
	for given, then := range map[string]string{sources: filepath.Join(parent, "acme"), filepath.Dir(sources): filepath.Join(parent, "acme"),
		elsewhere: filepath.Join(elsewhere, "acme")} {
		t.Chdir(given)
		if _, err := run(t, "acme", "--group", "acme.example.com", "--kind", "Card", "--replace", filepath.Join(parent, "drover")); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(then, "go.mod")); err != nil {
			t.Errorf("called in %s: %v", given, err)
		}
		if err := os.RemoveAll(then); err != nil {
			t.Fatal(err)
		}
	}
}
