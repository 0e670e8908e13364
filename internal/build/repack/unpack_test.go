// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// content of a folder: files with what they hold, links with "→ target", folders with "/".
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil || name == ".":
			return err
		case entry.IsDir():
			found[name] = "/"
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			found[name] = "→ " + target
			return err
		default:
			raw, err := os.ReadFile(path)
			found[name] = string(raw)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestUnpack(t *testing.T) {
	for name, tc := range map[string]struct {
		given [][]entry
		then  map[string]string
	}{
		"folders come without entries of their own": {
			given: [][]entry{{regular("usr/src/Makefile", "all:")}},
			then:  map[string]string{"usr": "/", "usr/src": "/", "usr/src/Makefile": "all:"},
		},
		"a higher layer wins": {
			given: [][]entry{{dir("a"), regular("a/f", "1"), regular("a/g", "1")}, {regular("a/f", "2")}},
			then:  map[string]string{"a": "/", "a/f": "2", "a/g": "1"},
		},
		"links, also out of the image and to nothing": {
			given: [][]entry{{link("build", "/usr/src/linux"), link("up", "../../etc/passwd"), regular("usr/src/f", "1"), link("src", "usr/src")},
				{regular("src/g", "2")}},
			then: map[string]string{
				"build": "→ /usr/src/linux", "up": "→ ../../etc/passwd", "src": "→ usr/src", "usr": "/", "usr/src": "/", "usr/src/f": "1",
				"usr/src/g": "2",
			},
		},
		"a hard link outlives what it was made of": {
			given: [][]entry{{regular("f", "1"), hard("g", "f")}, {regular("f", "2"), hard("h", "g")}, {regular(".wh.g", "")}},
			then:  map[string]string{"f": "2", "h": "1"},
		},
		"a whiteout": {
			given: [][]entry{{regular("a/f", "1"), regular("b/c/d", "1"), regular("k", "1")},
				{regular("a/.wh.f", ""), regular(".wh.b", ""), regular(".wh.never", "")}},
			then: map[string]string{"a": "/", "k": "1"},
		},
		"a whiteout is of lower layers": {
			given: [][]entry{{regular("a/f", "1"), regular("a/g", "1")}, {dir("a"), regular("a/h", "2"), regular(".wh.a", "")}},
			then:  map[string]string{"a": "/", "a/h": "2"},
		},
		"an opaque folder": {
			given: [][]entry{{regular("a/f", "1"), regular("a/b/g", "1")}, {regular("a/b/h", "2"), regular("a/.wh..wh..opq", "")}},
			then:  map[string]string{"a": "/", "a/b": "/", "a/b/h": "2"},
		},
		"another kind in its place": {
			given: [][]entry{{regular("a/f", "1"), regular("b", "1"), link("c", "/etc")}, {regular("a", "2"), dir("b"), regular("c", "2")}},
			then:  map[string]string{"a": "2", "b": "/", "c": "2"},
		},
		"devices and notes of storage drivers are left out": {
			given: [][]entry{{{name: "null", kind: tar.TypeChar}, {name: "pipe", kind: tar.TypeFifo}, regular(".wh..wh.plnk", ""),
				regular("/f", "1"), dir("./")}},
			then: map[string]string{"f": "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := t.TempDir()
			if err := Unpack(t.Context(), imageOf(t, tc.given...), to, DefaultLimits()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.then, content(t, to)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnpackedForEveryUser: a build is another user than the step that unpacks, and make goes by
// times.
func TestUnpackedForEveryUser(t *testing.T) {
	to := t.TempDir()
	secret := entry{name: "d/f", kind: tar.TypeReg, mode: 0o400}
	program := entry{name: "d/p", kind: tar.TypeReg, mode: 0o4711, uid: 0}
	closed := entry{name: "d", kind: tar.TypeDir, mode: 0o700}
	if err := Unpack(t.Context(), imageOf(t, []entry{closed, secret, program}), to, DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"d": fs.ModeDir | 0o755, "d/f": 0o644, "d/p": 0o755} {
		info, err := os.Lstat(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want || !info.IsDir() && info.ModTime().Unix() != 1_700_000_000 {
			t.Errorf("%s: %s, %s", name, info.Mode(), info.ModTime())
		}
	}
}

// TestUnpackStaysInside: whatever an image says, what is beside the folder stays as it is.
func TestUnpackStaysInside(t *testing.T) {
	limits := DefaultLimits()
	limits.Unpacked, limits.Entries = 1<<20, 1000
	for name, given := range map[string][][]entry{
		"upwards":                             {{regular("../victim", "hostile")}},
		"upwards, later":                      {{regular("a/../../victim", "hostile")}},
		"through a link":                      {{link("a", ".."), regular("a/victim", "hostile")}},
		"through a link of a lower layer":     {{link("a", "../")}, {regular("a/victim", "hostile")}},
		"through an absolute link":            {{link("a", "/tmp"), regular("a/victim", "hostile")}},
		"through two links":                   {{dir("d"), link("d/a", ".."), link("b", "d/a/.."), regular("b/victim", "hostile")}},
		"a hard link to the outside":          {{hard("a", "../victim")}},
		"a hard link through a link":          {{link("l", ".."), hard("a", "l/victim")}},
		"a hard link to nothing":              {{hard("a", "never")}},
		"a whiteout of all":                   {{regular(".wh...", "")}},
		"a whiteout through a link":           {{link("a", "..")}, {regular("a/.wh.victim", "")}},
		"below a file":                        {{regular("a", "1")}, {regular("a/b", "1")}},
		"more bytes than there may be of one": {{regular("a", string(make([]byte, 2<<20)))}},
	} {
		t.Run(name, func(t *testing.T) {
			beside := t.TempDir()
			to, victim := filepath.Join(beside, "to"), filepath.Join(beside, "victim")
			if err := errors.Join(os.Mkdir(to, 0o755), os.WriteFile(victim, []byte("intact"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := Unpack(t.Context(), imageOf(t, given...), to, limits); !errors.Is(err, ErrRefused) {
				t.Errorf("it is not refused: %v", err)
			}
			if raw, err := os.ReadFile(victim); string(raw) != "intact" {
				t.Errorf("beside the folder: %q, %v", raw, err)
			}
		})
	}
}

// TestUnpackOpaqueThroughALink: what a link leads to is not in the image.
func TestUnpackOpaqueThroughALink(t *testing.T) {
	beside := t.TempDir()
	to, victim := filepath.Join(beside, "to"), filepath.Join(beside, "victim")
	if err := errors.Join(os.Mkdir(to, 0o755), os.WriteFile(victim, []byte("intact"), 0o600)); err != nil {
		t.Fatal(err)
	}
	err := Unpack(t.Context(), imageOf(t, []entry{link("a", "..")}, []entry{regular("a/.wh..wh..opq", "")}), to, DefaultLimits())
	if _, statErr := os.Stat(victim); err != nil || statErr != nil {
		t.Errorf("%v, %v", err, statErr)
	}
}
